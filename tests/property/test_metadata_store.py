"""The embedded store against the memory store: the same answers to the same operations, restarts included."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.environment.environment import Environment
from barnabas.metadata.embedded import EmbeddedStore
from barnabas.metadata.memory import MemoryServer, MemoryStore
from barnabas.metadata.store import (
    Check,
    Create,
    Delete,
    Event,
    MetadataStore,
    Operation,
    Set,
    StoreError,
)

THOROUGH = bool(os.environ.get("BARNABAS_THOROUGH"))

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


@settings(max_examples=1000 if THOROUGH else 40, deadline=None)
@given(STEPS)
def test_embedded_store_is_a_memory_store_that_survives(steps: list[list[Operation] | str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_compare(Path(folder), steps))


async def _compare(path: Path, steps: list[list[Operation] | str]) -> None:
    server = MemoryServer()
    model: MetadataStore = MemoryStore(server)
    store: MetadataStore = await EmbeddedStore.open(Environment.of_system(), path)
    heard: list[tuple[Event, str]] = []
    expected: list[tuple[Event, str]] = []
    await store.watch("/a", lambda event, where: heard.append((event, where)))
    await model.watch("/a", lambda event, where: expected.append((event, where)))
    for step in steps:
        if isinstance(step, str):
            await store.close()
            await model.close()
            store, model = await EmbeddedStore.open(Environment.of_system(), path), MemoryStore(server)
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
