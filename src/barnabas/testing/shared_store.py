"""A metadata store that several brokers of one process share, each with its own event loop and thread.

`SharedServer` replaces ZooKeeper: it has the tree of nodes, and ends a session that has sent no heartbeat for
the session timeout. Clients send heartbeats from their event loops. So a broker whose event loop is stuck
loses its session, as a stopped process does.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Self, TypeVar

from barnabas.broker.metadata.session import FINAL, StoreSession, Watches
from barnabas.broker.metadata.store import (
    Cancel,
    Delete,
    Event,
    Operation,
    SessionListener,
    SessionState,
    SingleOperations,
    StoreNode,
    StoreUnavailableError,
    Watcher,
)
from barnabas.broker.metadata.tree import Tree

T = TypeVar("T")

#: heartbeats within a session timeout
_BEATS = 4


class SharedServer:
    """A metadata store in memory: a tree of nodes as in ZooKeeper, and the sessions of its clients.

    Any thread can use it. Use it in a ``with`` block: only there, sessions without heartbeats expire.

    Args:
        session_timeout: seconds without a heartbeat after which a session ends.
    """

    def __init__(self, session_timeout: float) -> None:
        self.session_timeout = session_timeout
        self._lock = threading.Lock()
        self._tree = Tree()
        self._clients: dict[int, SharedStore] = {}
        self._heard: dict[int, float] = {}
        self._last_session = 0
        self._closing = threading.Event()
        self._reaper = threading.Thread(target=self._reap, name="barnabas-store", daemon=True)

    def __enter__(self) -> Self:
        self._reaper.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._reaper.join()

    def begin(self, client: SharedStore) -> int:
        """Begin a session, and return its number. `client` then receives each change of a node."""
        with self._lock:
            self._last_session += 1
            self._clients[self._last_session] = client
            self._heard[self._last_session] = time.monotonic()
            return self._last_session

    def beat(self, session: int) -> None:
        """Record a heartbeat from the client of a session. Do nothing if the session has ended."""
        with self._lock:
            if session in self._heard:
                self._heard[session] = time.monotonic()

    def knows(self, session: int) -> bool:
        """Whether the session is still open."""
        return session in self._clients

    def read(self, session: int, function: Callable[[Tree], T]) -> T:
        """Return the result of `function(tree)`. Raises StoreUnavailableError if the session has ended."""
        with self._lock:
            self._check_lives(session)
            return function(self._tree)

    def apply(self, session: int, operations: Sequence[Operation]) -> list[int]:
        """Apply all operations in order, or none, and notify all clients.

        Return the version of the node after each operation; -1 for a deletion or a check.

        Raises StoreUnavailableError if the session has ended, and StoreError if an operation is not allowed.
        """
        with self._lock:
            self._check_lives(session)
            return self._apply(session, operations)

    def end(self, session: int) -> None:
        """End a session: remove its ephemeral nodes, and notify its client. Do nothing if it has ended."""
        with self._lock:
            self._end(session)

    def _apply(self, session: int, operations: Sequence[Operation]) -> list[int]:
        versions, changes = self._tree.apply(operations, session)
        news = [(change.event, change.path) for change in changes]
        for client in self._clients.values():
            client.hear(news)
        return versions

    def _end(self, session: int) -> None:
        client = self._clients.pop(session, None)
        if client is not None:
            del self._heard[session]
            client.hear([None])
            self._apply(session, [Delete(path) for path in self._tree.owned_by(session)])

    def _check_lives(self, session: int) -> None:
        if session not in self._clients:
            raise StoreUnavailableError("the session with the metadata store has ended")

    def _reap(self) -> None:
        """End sessions that send no heartbeats. Runs in a thread until the server is closed.

        If the whole process was stopped for a while, that time does not count.
        """
        period = self.session_timeout / (2 * _BEATS)
        woken = time.monotonic()
        while not self._closing.wait(period):
            now = time.monotonic()
            late, woken = now - woken - period, now
            with self._lock:
                if late > period:  # the whole process was stopped: no client could send a heartbeat
                    self._heard = {session: heard + late for session, heard in self._heard.items()}
                for session, heard in list(self._heard.items()):
                    if now - heard > self.session_timeout:
                        self._end(session)


class SharedStore(SingleOperations):
    """The client of a `SharedServer` for one broker. It is created and used on that broker's event loop.

    When the session expires, the client begins another one, as a ZooKeeper client of a broker does.
    """

    def __init__(self, server: SharedServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._watches = Watches()
        self._session = StoreSession(SessionState.CONNECTED)
        #: events, and None for the end of the session; any thread may append
        self._news: deque[tuple[Event, str] | None] = deque()
        self._session_id = server.begin(self)
        self._beating = self._loop.call_soon(self._beat)

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_timeout(self) -> float:
        return self._server.session_timeout

    @property
    def state(self) -> SessionState:
        return self._session.state

    @property
    def is_certain(self) -> bool:
        return self.state is SessionState.CONNECTED and self._server.knows(self._session_id)

    def on_state(self, listener: SessionListener) -> Cancel:
        return self._session.on_state(listener)

    async def get(self, path: str) -> StoreNode:
        return self._read(lambda tree: tree.get(path))

    async def exists(self, path: str) -> StoreNode | None:
        return self._read(lambda tree: tree.find(path))

    async def read(self, paths: Sequence[str]) -> list[StoreNode | None]:
        return self._read(lambda tree: [tree.find(path) for path in paths])

    async def children(self, path: str) -> list[str]:
        return self._read(lambda tree: tree.children(path))

    async def multi(self, operations: Sequence[Operation]) -> list[int]:
        self._deliver()
        self._check_open()
        try:
            return self._server.apply(self._session_id, operations)
        finally:
            self._deliver()

    async def watch(self, path: str, watcher: Watcher) -> Cancel:
        self._deliver()
        self._check_open()
        return self._watches.add(path, watcher)

    async def sync(self) -> None:
        self._deliver()
        self._check_open()

    async def close(self) -> None:
        self.abandon()
        self._server.end(self._session_id)
        self._session.enter(SessionState.CLOSED)

    def abandon(self) -> None:
        """Stop sending and receiving, like a killed process. The session ends after the timeout."""
        self._beating.cancel()
        self._watches.clear()

    def expire(self) -> None:
        """Make the server expire the session. Any thread can call it."""
        self._server.end(self._session_id)

    def hear(self, news: Iterable[tuple[Event, str] | None]) -> None:
        """Receive events, each with the path of its node, and deliver them on this client's event loop.

        None instead of an event means that the session has ended. Any thread can call this.
        """
        self._news.extend(news)
        with suppress(RuntimeError):  # its loop was closed: the broker was killed
            self._loop.call_soon_threadsafe(self._deliver)

    def _read(self, function: Callable[[Tree], T]) -> T:
        """Return `function(tree)`, after the delivery of all events of the changes in `tree`.

        So a client learns of a change by its event first, and can read the change only then, as in ZooKeeper.
        """
        self._deliver()
        self._check_open()
        answer = self._server.read(self._session_id, function)
        self._deliver()
        return answer

    def _deliver(self) -> None:
        while self._news:
            piece = self._news.popleft()
            if piece is not None:
                self._watches.report(*piece)
            elif self.state not in FINAL:
                self._session.enter(SessionState.LOST)
                self._session_id = self._server.begin(self)
                self._session.enter(SessionState.CONNECTED)

    def _beat(self) -> None:
        self._server.beat(self._session_id)
        self._beating = self._loop.call_later(self._server.session_timeout / _BEATS, self._beat)

    def _check_open(self) -> None:
        if self.state in FINAL:
            raise StoreUnavailableError("the session with the metadata store has ended")
