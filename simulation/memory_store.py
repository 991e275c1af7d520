"""A metadata store in memory that several sessions share. A test can end the sessions."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.broker.metadata.session import StoreSession, Watches
from barnabas.broker.metadata.store import (
    Cancel,
    Delete,
    Operation,
    SessionListener,
    SessionState,
    SingleOperations,
    StoreNode,
    StoreUnavailableError,
    Watcher,
)
from barnabas.broker.metadata.tree import Tree


class MemoryServer:
    """The tree of nodes that several sessions in one process share, as brokers share an ensemble."""

    def __init__(self) -> None:
        self.tree = Tree()
        self._stores: dict[int, MemoryStore] = {}
        self._last_session = 0

    def begin(self, store: MemoryStore) -> int:
        """Begin a session and return its number. `store` gets all changes until the session ends."""
        self._last_session += 1
        self._stores[self._last_session] = store
        return self._last_session

    def lives(self, session: int) -> bool:
        return session in self._stores

    def apply(self, operations: Sequence[Operation], session: int) -> list[int]:
        versions, changes = self.tree.apply(operations, session)
        watched = [store for store in self._stores.values() if not store.watches.is_empty]
        for store in watched:
            for change in changes:
                store.watches.report(change.event, change.path)
        return versions

    def end(self, session: int, state: SessionState = SessionState.LOST) -> None:
        """End a session, as an ensemble does after the session timeout or a close request."""
        store = self._stores.pop(session, None)
        if store is not None:
            self.apply([Delete(path) for path in self.tree.owned_by(session)], session)
            store.session.enter(state)


class MemoryStore(SingleOperations):
    """A client of a `MemoryServer`; without one it gets its own. Its session ends when it is closed or when
    the server ends it, and another one begins when it is told to."""

    def __init__(self, server: MemoryServer | None = None) -> None:
        self._server = server or MemoryServer()
        self.watches = Watches()
        self.session = StoreSession(SessionState.CONNECTED)
        self._session_id = self._server.begin(self)

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_timeout(self) -> float:
        return 0.0

    @property
    def state(self) -> SessionState:
        return self.session.state

    @property
    def is_certain(self) -> bool:
        return self.session.state is SessionState.CONNECTED

    def on_state(self, listener: SessionListener) -> Cancel:
        return self.session.on_state(listener)

    async def get(self, path: str) -> StoreNode:
        return self._tree.get(path)

    async def exists(self, path: str) -> StoreNode | None:
        return self._tree.find(path)

    async def read(self, paths: Sequence[str]) -> list[StoreNode | None]:
        return [self._tree.find(path) for path in paths]

    async def children(self, path: str) -> list[str]:
        return self._tree.children(path)

    async def multi(self, operations: Sequence[Operation]) -> list[int]:
        self._check_lives()
        return self._server.apply(operations, self._session_id)

    async def watch(self, path: str, watcher: Watcher) -> Cancel:
        self._check_lives()
        return self.watches.add(path, watcher)

    async def sync(self) -> None:
        self._check_lives()

    def expire(self) -> None:
        """End the session, as the server would."""
        self._server.end(self._session_id)

    def begin_again(self) -> None:
        """Begin another session after the end of the previous one."""
        self._session_id = self._server.begin(self)
        self.session.enter(SessionState.CONNECTED)

    async def close(self) -> None:
        self._server.end(self._session_id, SessionState.CLOSED)
        self.session.enter(SessionState.CLOSED)

    @property
    def _tree(self) -> Tree:
        self._check_lives()
        return self._server.tree

    def _check_lives(self) -> None:
        if not self._server.lives(self._session_id):
            raise StoreUnavailableError("the session with the metadata store has ended")
