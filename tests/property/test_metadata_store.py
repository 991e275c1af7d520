"""Compares the other stores with the memory store: the same answers to the same operations, also after
restarts.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

from hypothesis import given, settings
from hypothesis import strategies as st
from simulation.memory_store import MemoryServer, MemoryStore
from tests.effort import examples
from tests.zookeeper import PATIENT, new_chroot

from barnabas.base.environment.environment import Environment
from barnabas.broker.metadata.embedded import EmbeddedStore
from barnabas.broker.metadata.server.thread import StoreServerThread
from barnabas.broker.metadata.store import (
    Check,
    Create,
    Delete,
    Event,
    MetadataStore,
    Operation,
    Set,
    StoreError,
)
from barnabas.broker.metadata.zookeeper.address import parse_address
from barnabas.broker.metadata.zookeeper.server import ZooKeeperServer
from barnabas.broker.metadata.zookeeper.store import ZooKeeperStore

PATHS = st.sampled_from(["/a", "/a/b", "/a/b/c", "/a/d", "/e"])
VERSIONS = st.integers(-1, 3)
OPERATIONS: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Create, PATHS, st.binary(max_size=3), st.booleans()),
    st.builds(Set, PATHS, st.binary(max_size=3), VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)
RESTART = "restart"
STEPS = st.lists(st.one_of(st.lists(OPERATIONS, min_size=1, max_size=4), st.just(RESTART)), max_size=25)


#: opens a store on what the one before has left
Opener = Callable[[], Awaitable[MetadataStore]]


@settings(max_examples=examples(40, 1000), deadline=None)
@given(STEPS)
def test_embedded_store_is_a_memory_store_that_survives(steps: list[list[Operation] | str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_compare(lambda: EmbeddedStore.open(Environment.of_system(), folder), steps))


@settings(max_examples=examples(15, 300), deadline=None)
@given(steps=STEPS)
def test_zookeeper_is_what_the_memory_store_imitates(
    zookeeper: ZooKeeperServer, steps: list[list[Operation] | str]
) -> None:
    address = new_chroot(zookeeper.address)
    asyncio.run(_compare(lambda: ZooKeeperStore.open(address, session_timeout=PATIENT), steps))


@settings(max_examples=examples(10, 300), deadline=None)
@given(STEPS)
def test_served_store_is_a_memory_store_that_survives(steps: list[list[Operation] | str]) -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as exits:

        async def opened() -> MetadataStore:
            exits.close()  # the server of the store before
            server = exits.enter_context(StoreServerThread([folder]))
            return await ZooKeeperStore.open(parse_address(server.address), session_timeout=PATIENT)

        asyncio.run(_compare(opened, steps))


async def _compare(open_store: Opener, steps: list[list[Operation] | str]) -> None:
    server = MemoryServer()
    model: MetadataStore = MemoryStore(server)
    store = await open_store()
    heard: list[tuple[Event, str]] = []
    expected: list[tuple[Event, str]] = []
    await store.watch("/a", lambda event, where: heard.append((event, where)))
    await model.watch("/a", lambda event, where: expected.append((event, where)))
    for step in steps:
        if isinstance(step, str):
            await store.close()
            await model.close()
            store, model = await open_store(), MemoryStore(server)
            await store.watch("/a", lambda event, where: heard.append((event, where)))
            await model.watch("/a", lambda event, where: expected.append((event, where)))
        else:
            assert await _outcome(store, step) == await _outcome(model, step)
        assert await _contents(store, "/") == await _contents(model, "/")
        assert heard == expected
    await store.close()


async def _outcome(store: MetadataStore, operations: list[Operation]) -> object:
    try:
        return await store.multi(operations)
    except StoreError as error:
        return type(error)


async def _contents(store: MetadataStore, path: str) -> list[tuple[str, bytes, int, bool]]:
    node = await store.get(path)
    contents = [(path, node.data, node.version, node.owner != 0)]
    for name in await store.children(path):
        contents += await _contents(store, f"{path.rstrip('/')}/{name}")
    return contents
