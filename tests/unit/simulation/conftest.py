"""Protocols that keep the data that they get, on a network in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from simulation.network import NetworkConditions, SimulatedNetwork
from simulation.virtual_time import run_virtual


class Recorder(asyncio.Protocol):
    """Keeps the received data, and the way in which the connection ended."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.pieces = 0
        self.has_ended = False
        self.lost: list[Exception | None] = []
        self.is_paused = False
        self.pauses = 0

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        assert not self.lost
        self.received += data
        self.pieces += 1

    def eof_received(self):
        self.has_ended = True

    def pause_writing(self):
        assert not self.is_paused
        self.is_paused = True
        self.pauses += 1

    def resume_writing(self):
        assert self.is_paused
        self.is_paused = False

    def connection_lost(self, exc):
        self.lost.append(exc)


class World:
    """A network with a client and a server. `served` has the protocols that the server has made."""

    def __init__(self, seed: int = 0, **conditions) -> None:
        self.network = SimulatedNetwork(random.Random(seed), NetworkConditions(**conditions))
        self.client = self.network.host("client")
        self.server = self.network.host("server")
        self.served: list[Recorder] = []

    async def listen(self, factory=Recorder):
        def make():
            self.served.append(factory())
            return self.served[-1]

        listening = self.server.bind("", 9092)
        await listening.accept(make, backlog=5)
        return listening

    async def connect(self, factory=Recorder):
        served = len(self.served)
        _, protocol = await self.client.connect(factory, "server", 9092)
        while len(self.served) == served:
            await asyncio.sleep(0.001)
        return protocol

    async def pair(self):
        """Return both ends of a new connection."""
        await self.listen()
        client = await self.connect()
        return client, self.served[-1]


@pytest.fixture
def run() -> Callable[..., None]:
    """Run a scenario with a `World` in virtual time."""

    def run_scenario(scenario: Callable[[World], Awaitable[None]], seed: int = 0, **conditions) -> None:
        async def main() -> None:
            await scenario(World(seed, **conditions))

        run_virtual(main())

    return run_scenario
