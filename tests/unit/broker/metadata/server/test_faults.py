"""Clients of the served store under cuts, from a seed: no write is lost, duplicate,
or visible out of order.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from random import Random

import pytest
from tests.relay import Relay, relay
from tests.zookeeper import opened, until

from barnabas.broker.metadata.server.thread import StoreServerThread
from barnabas.broker.metadata.store import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    SessionState,
    StoreUnavailableError,
    UnknownOutcomeError,
)
from barnabas.broker.metadata.zookeeper.address import ZooKeeperAddress, parse_address
from barnabas.broker.metadata.zookeeper.store import ZooKeeperStore

CLIENTS = 3
INCREMENTS = 60
#: seconds; shorter than some cuts, so that sessions end
SESSION = 0.6
TICK = 0.05


class Counts:
    """The outcomes of all writes of a counter."""

    def __init__(self) -> None:
        self.done = 0
        self.unknown = 0


async def increment(store: ZooKeeperStore, counts: Counts) -> None:
    """Increment a counter by compare-and-set. The reads of one client never go back."""
    seen = 0
    tried = 0
    while tried < INCREMENTS:
        try:
            node = await store.get("/counter")
            assert node.version >= seen, "a client saw an older state than before"
            assert node.data == str(node.version).encode()
            seen = node.version
            tried += 1
            seen = await store.set("/counter", str(node.version + 1).encode(), node.version)
            counts.done += 1
        except UnknownOutcomeError:
            counts.unknown += 1
        except BadVersionError:
            tried -= 1
        except StoreUnavailableError:
            await until(store, SessionState.CONNECTED)


async def hold(store: ZooKeeperStore, held: dict[int, int], stop: asyncio.Event) -> None:
    """Create an ephemeral node repeatedly. It has one owner at a time, and ends with the owner's session."""
    while not stop.is_set():
        with suppress(StoreUnavailableError, NoNodeError, BadVersionError):
            with suppress(NodeExistsError):  # of another client, or left by an earlier attempt
                await store.create("/lock", ephemeral=True)
            node = await store.exists("/lock")
            if node is not None and node.owner == store.session_id:
                assert held.setdefault(node.created, node.owner) == node.owner
                await asyncio.sleep(0.01)
                await store.delete("/lock", node.version)
        await asyncio.sleep(0.005)


async def cut(relays: list[Relay], random: Random, stop: asyncio.Event) -> None:
    """Cut one connection after another, some for longer than a session timeout, and drop some answers."""
    while not stop.is_set():
        each = random.choice(relays)
        each.mute = random.random() < 0.5
        await asyncio.sleep(random.uniform(0.0, 0.03))
        each.cut()
        await asyncio.sleep(random.choice((0.02, 0.1, 2 * SESSION)))
        each.heal()
        await asyncio.sleep(random.uniform(0.05, 0.3))


@pytest.mark.parametrize("seed", [1, 2])
def test_counter_and_lock_hold_while_connections_are_cut(tmp_path: Path, seed: int) -> None:
    async def play(server: StoreServerThread) -> None:
        address = parse_address(server.address)
        counts, held, stop = Counts(), dict[int, int](), asyncio.Event()
        async with AsyncExitStack() as exits:
            witness = await exits.enter_async_context(opened(address))
            await witness.create("/counter", b"0")
            relays, stores = [], []
            for _ in range(CLIENTS):
                relays.append(await exits.enter_async_context(relay(address.socket_path or "")))
                through = ZooKeeperAddress((relays[-1].address,))
                stores.append(await exits.enter_async_context(opened(through, SESSION)))
            cutting = asyncio.create_task(cut(relays, Random(seed), stop))
            holding = [asyncio.create_task(hold(store, held, stop)) for store in stores]
            await asyncio.gather(*(increment(store, counts) for store in stores))
            stop.set()
            await asyncio.gather(cutting, *holding)
            for each in relays:
                each.heal()
            node = await witness.get("/counter")
            assert node.data == str(node.version).encode()
            assert counts.done <= node.version <= counts.done + counts.unknown
            for store in stores:
                await until(store, SessionState.CONNECTED)
                await store.sync()
                assert (await store.get("/counter")).version == node.version
            assert held
            owner = await witness.exists("/lock")
            assert owner is None or owner.owner in {store.session_id for store in stores}

    with StoreServerThread([tmp_path], tick=TICK) as server:
        asyncio.run(play(server))
