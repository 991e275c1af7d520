"""A simulated peer broker, and channels to it over the network in memory, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from simulation.network import NetworkConditions, SimulatedNetwork
from simulation.virtual_time import run_virtual

from barnabas.base.errors import ErrorCode
from barnabas.broker.interbroker import Channel, ChannelSettings
from barnabas.kafka.protocol.framing import FrameDecoder, encode_response, parse_request
from barnabas.kafka.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

SERVED = [ApiVersion(api_key=key, min_version=0, max_version=4) for key in (0, 12, 18)]


class PeerSession(asyncio.Protocol):
    """One connection of the peer. It answers in the order of the requests."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.frames = FrameDecoder(2**30)
        self.unanswered: deque[tuple[Any, asyncio.Future[Any]]] = deque()

    def connection_made(self, transport):
        self.transport = transport
        self.peer.sessions.append(self)

    def data_received(self, data):
        for frame in self.frames.feed(data):
            key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
            if key == 18 and version > self.peer.api_versions:
                correlation_id = frame[4:8]
                answer = b"\x00\x23" + b"\x00\x00\x00\x00"  # UNSUPPORTED_VERSION in v0
                self.transport.write((4 + len(answer)).to_bytes(4, "big") + correlation_id + answer)
                continue
            header, request = parse_request(frame)
            self.peer.asked.append(request)
            self.peer.client_ids.add(header.client_id)
            result = self.peer.answer(request)
            if not isinstance(result, asyncio.Future):
                future = asyncio.get_running_loop().create_future()
                future.set_result(result)
                result = future
            self.unanswered.append((header, result))
            result.add_done_callback(lambda _: self.answer_what_is_ready())
        self.answer_what_is_ready()

    def answer_what_is_ready(self):
        while self.unanswered and self.unanswered[0][1].done():
            header, future = self.unanswered.popleft()
            response = future.result()
            if isinstance(response, bytes):
                self.transport.write(response)
            elif response is not None:
                self.transport.writelines(list(map(bytes, encode_response(header, response))))

    def connection_lost(self, exc):
        self.peer.sessions.remove(self)


class Peer:
    """The parts of a broker that these tests need. `heartbeat` returns a response, a
    future of one, or bytes.
    """

    def __init__(self, network: SimulatedNetwork) -> None:
        self.network = network
        self.sessions: list[PeerSession] = []
        self.asked: list[Any] = []
        self.client_ids: set[str | None] = set()
        #: the highest version of ApiVersions
        self.api_versions = 4
        self.served = SERVED
        self.heartbeat: Callable[[HeartbeatRequest], Any] = lambda request: HeartbeatResponse()

    async def start(self) -> None:
        self.host = self.network.host("peer")
        await self.host.bind("", 9092).accept(lambda: PeerSession(self), backlog=5)

    def answer(self, request):
        if isinstance(request, ApiVersionsRequest):
            return ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=self.served)
        return self.heartbeat(request)

    @property
    def heartbeats(self) -> list[str]:
        """Return the group ids of all heartbeats in their order."""
        return [request.group_id for request in self.asked if isinstance(request, HeartbeatRequest)]


class World:
    def __init__(self, seed: int, settings: dict[str, Any], conditions: dict[str, Any]) -> None:
        self.rng = random.Random(seed)
        self.network = SimulatedNetwork(self.rng, NetworkConditions(**conditions))
        self.peer = Peer(self.network)
        self.client = self.network.host("client")
        self.settings = ChannelSettings(**settings)
        self.address = ("peer", 9092)

    def channel(self) -> Channel:
        return Channel(
            self.client,
            lambda: self.address,
            name="the peer",
            client_id="tests",
            rng=self.rng,
            settings=self.settings,
        )


def heartbeat(number: object = "g") -> HeartbeatRequest:
    return HeartbeatRequest(group_id=str(number))


@pytest.fixture
def run() -> Callable[..., None]:
    """Run a scenario on a `World` whose peer listens. Keyword arguments are settings of the channel."""

    def run_scenario(
        scenario: Callable[[World], Awaitable[None]],
        conditions: dict[str, Any] | None = None,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        async def main() -> None:
            world = World(seed, settings, conditions or {})
            await world.peer.start()
            await scenario(world)

        run_virtual(main())

    return run_scenario
