"""The requests of a broker to itself: its dispatcher answers them without the network."""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import BrokerId
from barnabas.broker.server.requests.context import NoConnection, RequestContext
from barnabas.broker.server.requests.dispatch import Dispatcher
from barnabas.kafka.protocol.framing import RequestHeader
from barnabas.kafka.protocol.schema import Request, Response


class OwnRequests:
    """Answers a broker's requests to itself once it serves.

    Args:
        node_id: this broker.
        listener: the listener at which another broker would receive the request.
    """

    def __init__(self, node_id: BrokerId, listener: str) -> None:
        self._node_id = node_id
        self.connection = NoConnection(listener)
        self._dispatcher: Dispatcher | None = None

    @property
    def is_served(self) -> bool:
        """Whether the broker has started so far that it answers requests."""
        return self._dispatcher is not None

    def serve_with(self, dispatcher: Dispatcher) -> None:
        """From now on, `dispatcher` answers."""
        self._dispatcher = dispatcher

    async def send(self, request: Request) -> Response:
        """The broker's response. Raises KafkaError BROKER_NOT_AVAILABLE while the broker starts."""
        if self._dispatcher is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "this broker is starting")
        header = RequestHeader(request.api_key, request.versions[1], 0, f"broker-{self._node_id}")
        return await self._dispatcher.answer(RequestContext(header, self.connection), request)
