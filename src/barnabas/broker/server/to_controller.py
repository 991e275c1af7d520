"""Sends a broker's own requests to the controller of its cluster, which can be this broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from barnabas.base.errors import ErrorCode, KafkaError, error_code
from barnabas.base.types import NO_BROKER, BrokerId
from barnabas.broker.interbroker import BrokerClient, ChannelError, RequestTimeoutError
from barnabas.broker.server.requests.context import NoConnection, RequestContext
from barnabas.broker.server.requests.dispatch import Dispatcher
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.framing import RequestHeader
from barnabas.kafka.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from barnabas.kafka.protocol.schema import Request, Response


class OwnRequests:
    """Answers the requests that a broker sends to itself, as soon as the broker serves requests.

    Args:
        node_id: id of this broker.
        listener: name of the inter-broker listener, for the context of the requests.
    """

    def __init__(self, node_id: BrokerId, listener: str) -> None:
        self._node_id = node_id
        self.connection = NoConnection(listener)
        self._dispatcher: Dispatcher | None = None

    @property
    def is_served(self) -> bool:
        """Whether `send` works: the broker has started the dispatcher (`serve_with`)."""
        return self._dispatcher is not None

    def serve_with(self, dispatcher: Dispatcher) -> None:
        """Set the dispatcher that executes the requests. From now on, `send` works."""
        self._dispatcher = dispatcher

    async def send(self, request: Request) -> Response:
        """Execute a request on this broker, and return the response.

        Raises:
            KafkaError: BROKER_NOT_AVAILABLE, the broker has not started yet.
            ProtocolError: this broker does not serve the API, or its response has no field for the error.
        """
        if self._dispatcher is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "this broker is starting")
        header = RequestHeader(request.api_key, request.versions[1], 0, f"broker-{self._node_id}")
        return await self._dispatcher.answer(RequestContext(header, self.connection), request)


class ToController:
    """Sends requests to the controller that this broker's image of the metadata shows.

    This class does not retry. If another broker has become the controller, the response has NOT_CONTROLLER.

    Args:
        view: image of this broker.
        peers: the other brokers.
        own_requests: executes the requests if this broker is the controller.
        request_timeout: default time limit of a request, in seconds.
    """

    def __init__(
        self, view: BrokerView, peers: BrokerClient, own_requests: OwnRequests, *, request_timeout: float
    ) -> None:
        self._view = view
        self._peers = peers
        self._own_requests = own_requests
        self._request_timeout = request_timeout
        self._serving: set[asyncio.Future[Any]] = set()

    @property
    def controller_id(self) -> BrokerId:
        """Id of the controller in this broker's image of the metadata; -1 if there is none."""
        return self._view.image.controller_id

    async def send(
        self, request: Request, *, timeout_s: float | None = None, purpose: str = "control"
    ) -> Any:
        """Send a request to the controller, and return its response.

        Args:
            request: the request.
            timeout_s: time limit in seconds from now; None for the default.
            purpose: purpose of the channel (`BrokerClient.channel`). Each purpose has its own connection, so
                that a long request does not delay others.

        Raises:
            KafkaError: NOT_CONTROLLER, there is no controller now, or this broker is the controller and
                cannot answer requests yet.
            ChannelError: the controller cannot be reached, or does not respond in time.
        """
        controller = self.controller_id
        if controller == NO_BROKER:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller now")
        if controller != self._view.node_id:
            return await self._peers.channel(controller, purpose).send(request, timeout_s=timeout_s)
        if not self._own_requests.is_served:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker, the controller, is starting")
        return await self._send_to_self(self._own_requests.send(request), timeout_s)

    async def _send_to_self(self, answer: Awaitable[Any], timeout_s: float | None) -> Any:
        serving = asyncio.ensure_future(answer)
        self._serving.add(serving)  # it continues after a timeout, as it would on another broker
        serving.add_done_callback(self._serving.discard)
        timeout = self._request_timeout if timeout_s is None else timeout_s
        try:
            return await asyncio.wait_for(asyncio.shield(serving), timeout)
        except TimeoutError as error:
            raise RequestTimeoutError(
                f"this broker, the controller, has not answered within {timeout:g} s",
                may_have_been_carried_out=True,
            ) from error


async def allocate_producer_ids(to_controller: ToController, broker_id: BrokerId, broker_epoch: int) -> range:
    """Request a block of producer ids from the controller, and return it.

    If the response is lost, no broker ever uses the block.

    Args:
        to_controller: sends the request.
        broker_id: id of this broker.
        broker_epoch: broker epoch of this broker.

    Raises:
        KafkaError: the controller rejects the request; NOT_CONTROLLER, there is no response.
    """
    request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch)
    try:
        block: AllocateProducerIdsResponse = await to_controller.send(request)
    except ChannelError as error:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, str(error)) from error
    if block.error_code:
        raise KafkaError(error_code(block.error_code))
    return range(block.producer_id_start, block.producer_id_start + block.producer_id_len)
