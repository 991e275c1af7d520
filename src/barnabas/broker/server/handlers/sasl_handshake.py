"""SaslHandshake v0-1: rejects a request on a listener without SASL, or after a login (KIP-43).

A client whose login has a time limit can log in again (KIP-368). `barnabas.broker.server.network.login`
answers then, and during a login.
"""

from __future__ import annotations

from barnabas.base.errors import ErrorCode
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import Anyone
from barnabas.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@handles(SaslHandshakeRequest, needs=[Anyone()], unconfirmed="it is about the connection")
def sasl_handshake(context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
