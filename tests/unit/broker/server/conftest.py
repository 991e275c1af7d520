"""A listener whose handlers the test writes, and a client with bare sockets."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.views import view_of

from barnabas.base.environment.environment import Environment
from barnabas.base.environment.network import SocketNetwork
from barnabas.base.system import event_loop
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.network.endpoint import Endpoint
from barnabas.broker.server.network.listener import Connections, Listener
from barnabas.broker.server.network.turns import Turns
from barnabas.broker.server.requests.api import Api
from barnabas.broker.server.requests.dispatch import Dispatcher
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.requests.order import IN_TURN, Order
from barnabas.kafka.protocol.framing import RequestHeader, encode_request, parse_response
from barnabas.kafka.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def _failed(response: type[Any]) -> Callable[[Any, Any], Any]:
    return lambda request, error: response(error_code=error.code)


class Server:
    """One listener. `heartbeat` answers Heartbeat requests, which have different group ids."""

    def __init__(self, **settings: Any) -> None:
        self.heartbeat: Callable[[HeartbeatRequest], Any] = lambda request: HeartbeatResponse()
        self.api_versions: Callable[[ApiVersionsRequest], Any] = lambda request: ApiVersionsResponse()
        self.cancel_on_disconnect = False
        self.order: Order = IN_TURN
        self.host = "127.0.0.1"
        self.view = view_of(config=BrokerConfig(**settings))
        self.clients: list[Client] = []
        self.connections = Connections(self.view, Turns(lambda: 0.0))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Server]:
        apis = {
            12: Api(
                key=12,
                name="Heartbeat",
                request=HeartbeatRequest,
                response=HeartbeatResponse,
                versions=(0, 4),
                advertised_from=0,
                handle=lambda _ports, context, request: self.heartbeat(request),
                on_error=_failed(HeartbeatResponse),
                cancel_on_disconnect=self.cancel_on_disconnect,
                needs=(),
                order=self.order,
            ),
            18: Api(
                key=18,
                name="ApiVersions",
                request=ApiVersionsRequest,
                response=ApiVersionsResponse,
                versions=(0, 4),
                advertised_from=0,
                handle=lambda _ports, context, request: self.api_versions(request),
                on_error=_failed(ApiVersionsResponse),
                cancel_on_disconnect=False,
                needs=(),
                order=self.order,
            ),
        }
        served = {key: api.using(None) for key, api in apis.items()}
        dispatcher = Dispatcher(served, LongWork(Environment.of_system()))
        self.listener = Listener(Endpoint("PLAINTEXT", self.host, 0), self.connections, SocketNetwork())
        self.listener.bind()
        await self.listener.start(lambda: dispatcher.serve)
        try:
            yield self
        finally:
            self.listener.unbind()
            self.connections.close_all()
            for client in self.clients:
                client.close()
            await asyncio.gather(*(c.writer.wait_closed() for c in self.clients), return_exceptions=True)

    async def connect(self, **options: Any) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listener.endpoint.port, **options)
        self.clients.append(Client(reader, writer))
        return self.clients[-1]


class Client:
    """A client that sends given bytes, one at a time if necessary."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @staticmethod
    def heartbeat(correlation_id: int, group_id: str = "g") -> bytes:
        header = RequestHeader(12, 4, correlation_id, "test")
        return b"".join(encode_request(header, HeartbeatRequest(group_id=group_id)))

    @staticmethod
    def api_versions(correlation_id: int) -> bytes:
        return b"".join(encode_request(RequestHeader(18, 2, correlation_id, "test"), ApiVersionsRequest()))

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def frame(self) -> bytes:
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return await self.reader.readexactly(size)

    async def answer(self, correlation_id: int) -> HeartbeatResponse:
        """Return the next reply, which must be to that request."""
        response = parse_response(RequestHeader(12, 4, correlation_id, "test"), await self.frame())
        assert isinstance(response, HeartbeatResponse)
        return response

    async def is_closed(self) -> bool:
        """Return whether the server closes the connection without sending another byte."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.writer.close()


def reset_when_closed(writer: asyncio.StreamWriter) -> None:
    """Let the close of the connection send a reset, not the end of the stream."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.fixture
def run() -> Callable[[Callable[[Server], Awaitable[None]]], None]:
    """Run a scenario with a `Server` on the event loop that brokers use."""

    def run_scenario(
        scenario: Callable[[Server], Awaitable[None]],
        *,
        cancel_on_disconnect: bool = False,
        order: Order = IN_TURN,
        host: str = "127.0.0.1",
        **settings: Any,
    ) -> None:
        async def main() -> None:
            server = Server(**settings)
            server.cancel_on_disconnect = cancel_on_disconnect
            server.order = order
            server.host = host
            async with server.running():
                await asyncio.wait_for(scenario(server), 20)

        event_loop.run(main())

    return run_scenario
