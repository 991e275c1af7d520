"""The behaviour of every metadata store, independent of its storage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from simulation.ensemble import SimulatedEnsemble
from simulation.memory_store import MemoryStore
from tests.zookeeper import new_chroot, opened

from barnabas.base.environment.environment import Environment
from barnabas.broker.metadata.embedded import EmbeddedStore
from barnabas.broker.metadata.server.thread import StoreServerThread
from barnabas.broker.metadata.store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    EphemeralParentError,
    Event,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionState,
    Set,
    StoreUnavailableError,
)
from barnabas.broker.metadata.zookeeper.address import parse_address
from barnabas.broker.metadata.zookeeper.server import ZooKeeperServer
from barnabas.testing.shared_store import SharedServer, SharedStore

Scenario = Callable[[MetadataStore], Awaitable[Any]]
Play = Callable[[Scenario], Any]


@asynccontextmanager
async def _memory(_: Path) -> AsyncIterator[MetadataStore]:
    store = MemoryStore()
    yield store
    await store.close()


@asynccontextmanager
async def _embedded(folder: Path) -> AsyncIterator[MetadataStore]:
    store = await EmbeddedStore.open(Environment.of_system(), folder)
    yield store
    await store.close()


@asynccontextmanager
async def _simulated(_: Path) -> AsyncIterator[MetadataStore]:
    store = await SimulatedEnsemble(Random(1)).open("client")
    yield store
    await store.close()


@asynccontextmanager
async def _shared(_: Path) -> AsyncIterator[MetadataStore]:
    with SharedServer(session_timeout=30.0) as server:
        store = SharedStore(server)
        yield store
        await store.close()


@asynccontextmanager
async def _served(folder: Path) -> AsyncIterator[MetadataStore]:
    with StoreServerThread([folder]) as server:
        async with opened(parse_address(server.address)) as store:
            yield store


STORES: dict[str, Callable[[Path], AbstractAsyncContextManager[MetadataStore]]] = {
    "memory": _memory,
    "embedded": _embedded,
    "simulated": _simulated,
    "shared": _shared,
    "served": _served,
}


@pytest.fixture(params=[*STORES, "zookeeper"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    """Run a scenario with a new store of each kind."""
    if request.param == "zookeeper":  # started only if it is among the tests to run
        server: ZooKeeperServer = request.getfixturevalue("zookeeper")

    def fresh() -> AbstractAsyncContextManager[MetadataStore]:
        if request.param == "zookeeper":
            return opened(new_chroot(server.address))
        return STORES[request.param](tmp_path)

    def run(scenario: Scenario) -> Any:
        async def session() -> Any:
            async with fresh() as store:
                return await scenario(store)

        return asyncio.run(session())

    return run


def test_created_node_is_read_back_with_version_zero(play: Play) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/a", b"data")
        node = await store.get("/a")
        assert (node.data, node.version, node.owner) == (b"data", 0, 0)
        assert await store.exists("/a") == node

    play(scenario)


def test_missing_node_is_an_error_to_get_and_none_to_exists(play: Play) -> None:
    async def scenario(store: MetadataStore) -> None:
        with pytest.raises(NoNodeError):
            await store.get("/a")
        with pytest.raises(NoNodeError):
            await store.children("/a")
        assert await store.exists("/a") is None

    play(scenario)


def test_many_nodes_are_read_at_once_and_missing_ones_are_none(play: Play) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/a", b"1")
        await store.create("/b", b"2")
        assert await store.read(["/b", "/none", "/a"]) == [await store.get("/b"), None, await store.get("/a")]
        assert await store.read([]) == []

    play(scenario)


def test_node_is_made_once_and_only_under_a_parent(play: Play) -> None:
    async def scenario(store: MetadataStore) -> None:
        with pytest.raises(NoNodeError):
            await store.create("/a/b")
        await store.create("/a")
        await store.create("/a/b")
        with pytest.raises(NodeExistsError):
            await store.create("/a/b", b"other")
        assert (await store.get("/a/b")).data == b""

    play(scenario)


def test_children_are_names_in_order(play: Play) -> None:
    async def scenario(store: MetadataStore) -> None:
        for path in ("/a", "/a/c", "/a/b", "/a/b/deeper"):
            await store.create(path)
        assert await store.children("/a") == ["b", "c"]
        assert await store.children("/a/c") == []
        assert "a" in await store.children("/")

    play(scenario)


def test_set_raises_the_version_and_refuses_a_stale_one(play: Play) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/a", b"0")
        assert await store.set("/a", b"1", version=0) == 1
        with pytest.raises(BadVersionError):
            await store.set("/a", b"2", version=0)
        assert (await store.get("/a")).data == b"1"
        assert await store.set("/a", b"3") == 2
        with pytest.raises(NoNodeError):
            await store.set("/b", b"")

    play(scenario)


def test_delete_checks_version_children_and_existence(play: Play) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/a")
        await store.create("/a/b")
        with pytest.raises(NotEmptyError):
            await store.delete("/a")
        with pytest.raises(BadVersionError):
            await store.delete("/a/b", version=5)
        await store.delete("/a/b", version=0)
        await store.delete("/a")
        with pytest.raises(NoNodeError):
            await store.delete("/a")

    play(scenario)


def test_node_made_again_has_a_higher_creation_number(play: Play) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/a")
        first = (await store.get("/a")).created
        await store.delete("/a")
        await store.create("/a")
        again = await store.get("/a")
        assert again.created > first
        assert again.version == 0

    play(scenario)


def test_multi_does_all_in_order_and_tells_versions(play: Play) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/a", b"")
        assert await store.multi(
            [Check("/a", 0), Create("/a/b", b"x"), Set("/a/b", b"y"), Set("/a", b"z", 0), Delete("/a/b", 1)]
        ) == [-1, 0, 1, 1, -1]
        assert (await store.get("/a")).data == b"z"
        assert await store.children("/a") == []

    play(scenario)


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (Check("/a", 7), BadVersionError),
        (Check("/nowhere"), NoNodeError),
        (Create("/a"), NodeExistsError),
        (Create("/nowhere/b"), NoNodeError),
        (Set("/a", b"", 9), BadVersionError),
        (Delete("/a"), NotEmptyError),
    ],
    ids=str,
)
def test_multi_that_fails_changes_nothing(play: Play, last: Any, error: type[Exception]) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/a", b"before")
        await store.create("/a/gone")
        heard: list[str] = []
        await store.watch("/", lambda event, path: heard.append(path))
        with pytest.raises(error):
            await store.multi([Set("/a", b"after"), Delete("/a/gone"), Create("/a/new"), last])
        assert await store.children("/a") == ["gone"]
        node = await store.get("/a")
        assert (node.data, node.version) == (b"before", 0)
        assert heard == []

    play(scenario)


def test_of_many_writers_with_one_version_a_single_one_wins(play: Play) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/a")
        results = await asyncio.gather(
            *(store.set("/a", str(writer).encode(), version=0) for writer in range(20)),
            return_exceptions=True,
        )
        assert sorted(str(type(result)) for result in results).count(str(int)) == 1
        assert sum(isinstance(result, BadVersionError) for result in results) == 19

    play(scenario)


def test_watcher_hears_of_its_node_and_all_below_before_the_write_returns(play: Play) -> None:
    async def scenario(store: MetadataStore) -> None:
        heard: list[tuple[Event, str]] = []
        await store.create("/a")
        await store.create("/other")
        await store.watch("/a", lambda event, path: heard.append((event, path)))
        await store.create("/a/b")
        assert heard == [(Event.CREATED, "/a/b")]
        await store.set("/a", b"x")
        await store.set("/other", b"x")
        await store.multi([Create("/a/b/c"), Delete("/a/b/c")])
        await store.delete("/a/b")
        await store.delete("/a")
        await store.create("/a")
        assert heard[1:] == [
            (Event.CHANGED, "/a"),
            (Event.CREATED, "/a/b/c"),
            (Event.DELETED, "/a/b/c"),
            (Event.DELETED, "/a/b"),
            (Event.DELETED, "/a"),
            (Event.CREATED, "/a"),
        ]

    play(scenario)


def test_watch_of_a_name_is_not_a_watch_of_longer_names(play: Play) -> None:
    async def scenario(store: MetadataStore) -> None:
        heard: list[str] = []
        await store.watch("/a", lambda event, path: heard.append(path))
        await store.create("/ab")
        assert heard == []

    play(scenario)


def test_cancelled_watch_hears_nothing_more_and_others_go_on(play: Play) -> None:
    async def scenario(store: MetadataStore) -> None:
        heard: list[str] = []
        cancelled: list[str] = []
        cancel = await store.watch("/", lambda event, path: cancelled.append(path))
        await store.watch("/", lambda event, path: heard.append(path))
        await store.create("/a")
        cancel()
        cancel()
        await store.create("/b")
        assert (cancelled, heard) == (["/a"], ["/a", "/b"])

    play(scenario)


def test_session_is_connected_until_the_store_is_closed_and_listeners_hear_of_it_once(play: Play) -> None:
    async def scenario(store: MetadataStore) -> None:
        heard: list[SessionState] = []
        cancelled: list[SessionState] = []
        store.on_state(heard.append)
        store.on_state(cancelled.append)()
        assert store.state is SessionState.CONNECTED
        await store.close()
        await store.close()
        assert store.state is SessionState.CLOSED
        assert (heard, cancelled) == ([SessionState.CLOSED], [])

    play(scenario)


def test_watcher_that_fails_does_not_fail_the_write(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(store: MetadataStore) -> None:
        def broken(event: Event, path: str) -> None:
            raise RuntimeError("on purpose")

        await store.watch("/", broken)
        await store.create("/a")
        assert await store.exists("/a")

    play(scenario)
    assert "on purpose" in caplog.text


def test_ephemeral_node_bears_its_session_and_no_children(play: Play) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/a", b"x", ephemeral=True)
        assert (await store.get("/a")).owner == store.session_id != 0
        with pytest.raises(EphemeralParentError):
            await store.create("/a/b")

    play(scenario)


def test_closed_store_says_so(play: Play) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.close()
        with pytest.raises(StoreUnavailableError):
            await store.get("/")
        with pytest.raises(StoreUnavailableError):
            await store.create("/a")
        with pytest.raises(StoreUnavailableError):
            await store.sync()

    play(scenario)


def test_after_a_sync_what_was_written_is_read(play: Play) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/a", b"1")
        await store.sync()
        assert (await store.get("/a")).data == b"1"

    play(scenario)


@pytest.mark.parametrize("path", ["", "a", "/a/", "//", "/a//b", "/a/../b", "/.", "/a\0b"])
def test_malformed_path_is_refused(play: Play, path: str) -> None:
    async def scenario(store: MetadataStore) -> None:
        with pytest.raises(ValueError, match="path"):
            await store.create(path)

    play(scenario)
