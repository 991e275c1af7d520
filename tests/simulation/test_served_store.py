"""The server of the metadata store in virtual time: brokers lose no write, and see no change out of order.

Each seed has its own faults: cut, slow and reset connections, a paused server, kills of the server, also in
the middle of a change of its disk, and power cuts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest
from simulation.network import SimulatedNetwork
from simulation.store_client import Lost, Refused, StoreSession
from simulation.store_machine import PORT, StoreMachine
from simulation.virtual_time import run_virtual
from tests.effort import examples

from barnabas.broker.metadata.copies import JournalCopies
from barnabas.broker.metadata.server.server import StoreServer
from barnabas.broker.metadata.server.wire import Code
from barnabas.broker.metadata.store import Create, Delete, Set
from barnabas.broker.metadata.zookeeper.requests import Get, MultiRead

SERVER = "store"
CLIENTS = 3
#: seconds; some faults last longer, so that sessions end
SESSION = 2.0
STORM = 20.0
COUNTER, LOCK = "/counter", "/lock"


class Counts:
    """The outcomes of all increments of the counter."""

    def __init__(self) -> None:
        self.done = 0
        self.unknown = 0
        self.sessions = 0


class GetCounter(Get):
    """A read of the counter, whose answer comes with the number of events before it.

    Events and answers are taken from the connection in their order.
    """

    def __init__(self, events: Callable[[], int]) -> None:
        super().__init__(COUNTER, "")
        self._events = events

    def deserialize(self, data: bytes, offset: int):
        return super().deserialize(data, offset), self._events()


class Client:
    """A broker that increments a counter, takes a lock, and follows the changes of both."""

    def __init__(self, network: SimulatedNetwork, number: int, counts: Counts) -> None:
        self.name = f"broker-{number}"
        self._session = StoreSession(network.host(self.name), SERVER, PORT, SESSION, self._on_event)
        self._counts = counts
        self._random = Random(number)
        #: changes of the counter since the connection watches it, and its version then
        self._events = 0
        self._first: int | None = None
        self.holders: dict[int, int] = {}

    @property
    def session_id(self) -> int:
        return self._session.id

    def _on_event(self, path: str) -> None:
        self._events += path == COUNTER

    async def run(self, end: asyncio.Event) -> None:
        while not end.is_set():
            with suppress(OSError, TimeoutError):
                await self.step()
            await asyncio.sleep(self._random.uniform(0, 0.05))

    async def step(self) -> None:
        if not self._session.is_connected:
            self._events, self._first = 0, None
            self._counts.sessions += not await self._session.connect()
        await self.increment()
        if self._random.random() < 0.3:
            await self.take_lock()

    async def increment(self) -> None:
        node, events = await self._session.ask(GetCounter(lambda: self._events))
        assert node.data == str(node.version).encode()
        # An answer comes after the events of all changes that it shows, and before those of later ones.
        if self._first is None:
            self._first = node.version - events
        assert node.version == self._first + events
        try:
            await self._session.write(Set(COUNTER, str(node.version + 1).encode(), node.version))
        except Lost:
            self._counts.unknown += 1
            raise
        except Refused as refused:
            assert refused.code == Code.BAD_VERSION
        else:
            self._counts.done += 1

    async def take_lock(self) -> None:
        try:
            await self._session.write(Create(LOCK, b"", ephemeral=True))
        except Refused as refused:
            assert refused.code == Code.NODE_EXISTS
            return
        (node,) = await self._session.ask(MultiRead([LOCK], ""))
        assert node is not None and node.owner == self.session_id
        await asyncio.sleep(self._random.uniform(0, 0.1))
        await self._session.write(Delete(LOCK, node.version))

    async def read(self, path: str):
        """Read a node when the server answers; None if it is missing."""
        while True:
            with suppress(OSError, TimeoutError):
                if not self._session.is_connected:
                    self._events, self._first = 0, None
                    await self._session.connect()
                return (await self._session.ask(MultiRead([path], "")))[0]
            await asyncio.sleep(0.1)

    async def make_counter(self) -> None:
        while await self.read(COUNTER) is None:
            with suppress(OSError, Refused):
                await self._session.write(Create(COUNTER, b"0"))


async def storm(machine: StoreMachine, network: SimulatedNetwork, random: Random) -> None:
    """One fault after the other; some end before the next begins."""
    ends = asyncio.get_running_loop().time() + STORM
    while asyncio.get_running_loop().time() < ends:
        client = f"broker-{random.randrange(CLIENTS)}"
        fault = random.choice(("cut", "cut one way", "reset", "pause", "slow disk", "kill", "fuse"))
        if fault.startswith("cut"):
            network.cut(*random.sample((client, SERVER), 2), one_way=fault == "cut one way")
        elif fault == "reset":
            network.reset(client, SERVER)
        elif fault == "pause":
            machine.pause()
        elif fault == "slow disk":
            machine.slow_down(random.uniform(0.01, 0.5))
        elif fault == "kill":
            machine.kill(power=random.random() < 0.5)
        else:
            machine.light_fuse(random.randrange(20), power=random.random() < 0.5)
        await asyncio.sleep(random.choice((0.05, 0.5, 1.5 * SESSION)) * random.random())
        heal(machine, network)
        await asyncio.sleep(random.uniform(0, 1))


def heal(machine: StoreMachine, network: SimulatedNetwork) -> None:
    network.heal_all()
    machine.resume()
    machine.slow_down(0.001)
    machine.start()


async def play(seed: int) -> Counts:
    network = SimulatedNetwork(Random(f"{seed} network"))
    machine = StoreMachine(network, SERVER, seed)
    machine.start()
    counts, end = Counts(), asyncio.Event()
    clients = [Client(network, number, counts) for number in range(CLIENTS)]
    await clients[0].make_counter()
    running = [asyncio.create_task(client.run(end)) for client in clients]
    await storm(machine, network, Random(seed))
    machine.light_fuse(10**9, power=False)
    heal(machine, network)
    await asyncio.sleep(3 * SESSION)
    end.set()
    await asyncio.gather(*running)
    for client in clients:
        node = await client.read(COUNTER)
        assert node is not None
        assert counts.done <= node.version <= counts.done + counts.unknown
    lock = await clients[0].read(LOCK)
    assert lock is None or lock.owner in {client.session_id for client in clients}
    return counts


@pytest.mark.parametrize("seed", range(examples(4, 500)))
def test_no_write_is_lost_and_no_change_is_seen_out_of_order(seed: int) -> None:
    counts = run_virtual(play(seed))
    assert counts.done > 100
    assert counts.sessions > CLIENTS


def answers_before_the_disk(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JournalCopies, "commit", lambda copies, changes, transaction: None)


def tells_events_late(patch: pytest.MonkeyPatch) -> None:
    report = StoreServer._report
    patch.setattr(
        StoreServer,
        "_report",
        lambda server, changes: asyncio.get_running_loop().call_later(0.001, report, server, changes),
    )


@pytest.mark.parametrize("bug", [answers_before_the_disk, tells_events_late])
def test_a_server_with_a_bug_is_found_out(monkeypatch: pytest.MonkeyPatch, bug) -> None:
    bug(monkeypatch)
    with pytest.raises((AssertionError, Refused)):
        for seed in range(5):
            run_virtual(asyncio.wait_for(play(seed), 600))
