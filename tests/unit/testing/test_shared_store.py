"""The store that brokers of one process share, each in its own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.broker.metadata.store import Event, NoNodeError, SessionState, StoreUnavailableError
from barnabas.testing.shared_store import SharedServer, SharedStore

PATIENCE = 60.0


class Client:
    """A client with its own event loop and thread."""

    def __init__(self, server: SharedServer) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.store = self.run(lambda: SharedStore(server))

    def run(self, function: Callable[[], Any]) -> Any:
        async def call() -> Any:
            answer = function()
            return await answer if asyncio.iscoroutine(answer) else answer

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(PATIENCE)

    def end(self) -> None:
        self.run(self.store.close)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def server() -> Iterator[SharedServer]:
    with SharedServer(session_timeout=0.4) as server:
        yield server


@pytest.fixture
def connect(server: SharedServer) -> Iterator[Callable[[], Client]]:
    clients: list[Client] = []

    def begin() -> Client:
        clients.append(Client(server))
        return clients[-1]

    yield begin
    for client in clients:
        client.end()


def heard_by(client: Client, path: str) -> tuple[list[tuple[Event, str]], threading.Event]:
    """Return the events of a watch, and a signal for the first event."""
    heard: list[tuple[Event, str]] = []
    some = threading.Event()

    def watcher(event: Event, path: str) -> None:
        assert threading.current_thread() is client.thread
        heard.append((event, path))
        some.set()

    client.run(lambda: client.store.watch(path, watcher))
    return heard, some


def test_a_client_hears_on_its_own_thread_what_another_one_does(connect):
    writer, reader = connect(), connect()
    heard, some = heard_by(reader, "/a")
    writer.run(lambda: writer.store.create("/a", b"1"))
    assert some.wait(PATIENCE)
    assert heard == [(Event.CREATED, "/a")]


def test_nobody_reads_what_is_new_before_having_heard_of_it(connect):
    writer, reader = connect(), connect()
    writer.run(lambda: writer.store.create("/a", b"1"))
    heard, _ = heard_by(reader, "/a")

    async def write_elsewhere_then_read() -> tuple[bytes, int]:
        # this loop is busy until it reads, so no wake-up can have come in between
        asyncio.run_coroutine_threadsafe(writer.store.set("/a", b"2"), writer.loop).result(PATIENCE)
        node = await reader.store.get("/a")
        return node.data, len(heard)

    assert reader.run(write_elsewhere_then_read) == (b"2", 1)


def test_a_client_that_stands_still_loses_its_session_and_its_ephemeral_nodes(connect):
    sleeper, other = connect(), connect()
    sleeper.run(lambda: sleeper.store.create("/mine", ephemeral=True))
    heard, some = heard_by(other, "/mine")
    states: list[SessionState] = []
    sleeper.run(lambda: sleeper.store.on_state(states.append))
    before = sleeper.store.session_id

    assert sleeper.run(lambda: some.wait(PATIENCE)), "its loop stands still until the node is gone"
    assert heard == [(Event.DELETED, "/mine")]
    with pytest.raises(NoNodeError):
        sleeper.run(lambda: sleeper.store.get("/mine"))
    assert states == [SessionState.LOST, SessionState.CONNECTED]
    assert sleeper.store.session_id != before


def test_a_session_that_is_ended_on_request_is_followed_by_another_one(connect):
    client = connect()
    client.run(lambda: client.store.create("/mine", ephemeral=True))
    before = client.store.session_id
    client.store.expire()
    assert client.run(lambda: client.store.exists("/mine")) is None
    client.run(lambda: client.store.create("/mine", ephemeral=True))
    assert client.run(lambda: client.store.get("/mine")).owner == client.store.session_id != before


def test_an_abandoned_client_is_found_out_by_its_silence(connect):
    killed, other = connect(), connect()
    killed.run(lambda: killed.store.create("/mine", ephemeral=True))
    _, some = heard_by(other, "/mine")
    killed.run(killed.store.abandon)
    assert some.wait(PATIENCE)


def test_a_closed_client_is_refused(connect):
    client = connect()
    client.run(client.store.close)
    with pytest.raises(StoreUnavailableError):
        client.run(lambda: client.store.get("/"))
