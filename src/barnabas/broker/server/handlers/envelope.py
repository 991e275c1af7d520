"""Envelope v0: contains a client's request that another broker forwards to the controller (KIP-590).

An envelope can contain only requests that brokers forward. The controller authorises the request for the
principal and the client address in the envelope. The envelope's response contains the controller's response.
"""

from __future__ import annotations

import ipaddress

from barnabas.base.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.broker.controller import Controller
from barnabas.broker.server.forwarding import Forwarding, decode_principal
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import ClientConnection, RequestContext
from barnabas.broker.server.requests.dispatch import Dispatcher
from barnabas.broker.server.requests.needs import BETWEEN_BROKERS
from barnabas.broker.server.requests.order import BetweenBrokers
from barnabas.kafka.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.kafka.security.principal import Principal

_SIZE = 4


class _ForwardedConnection:
    """Represents a client's connection to another broker, in the context of a forwarded request."""

    client_software_name = ""
    client_software_version = ""
    client_port = 0

    def __init__(self, by: ClientConnection, client_host: str, principal: Principal) -> None:
        self.connection_id = by.connection_id
        self.listener = by.listener
        self.client_host = client_host
        self.principal = principal
        self.close = by.close
        self.when_closed = by.when_closed


@handles(
    EnvelopeRequest, needs=[BETWEEN_BROKERS], order=BetweenBrokers(), unconfirmed="the controller decides it"
)
async def envelope(
    controller: Controller,
    forwarding: Forwarding,
    dispatcher: Dispatcher,
    context: RequestContext,
    request: EnvelopeRequest,
) -> EnvelopeResponse:
    if not controller.active:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    frame = request.request_data
    if int.from_bytes(frame[:2], "big") not in forwarding.local:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    try:
        client = str(ipaddress.ip_address(request.client_host_address))
    except ValueError:
        client = context.connection.client_host
    try:
        principal = decode_principal(request.request_principal)
    except ProtocolError as error:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from error
    connection = _ForwardedConnection(context.connection, client, principal)
    try:
        chunks = await dispatcher.answer_frame(frame, connection)
    except ProtocolError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
    return EnvelopeResponse(response_data=b"".join(map(bytes, chunks))[_SIZE:])
