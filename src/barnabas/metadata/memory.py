"""A metadata store that lives and dies with its process."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.metadata.operations import SingleOperations
from barnabas.metadata.store import Delete, Node, Operation, StoreUnavailableError, Watcher
from barnabas.metadata.tree import Tree
from barnabas.metadata.watches import Watches


class MemoryServer:
    """The tree that several sessions in one process share, as brokers share an ensemble."""

    def __init__(self) -> None:
        self.tree = Tree()
        self._sessions: dict[int, Watches] = {}
        self._last_session = 0

    def begin(self, watches: Watches) -> int:
        """A new session's number; its watches hear of changes until it ends."""
        self._last_session += 1
        self._sessions[self._last_session] = watches
        return self._last_session

    def lives(self, session: int) -> bool:
        return session in self._sessions

    def apply(self, operations: Sequence[Operation], session: int) -> list[int]:
        versions, changes = self.tree.apply(operations, session)
        for watches in list(self._sessions.values()):
            watches.report(changes)
        return versions

    def end(self, session: int) -> None:
        """What an ensemble does when it has not heard of a session for its timeout, or is told goodbye."""
        if self._sessions.pop(session, None) is not None:
            self.apply([Delete(path) for path in self.tree.owned_by(session)], session)


class MemoryStore(SingleOperations):
    """One session with a `MemoryServer`; without one it gets its own."""

    def __init__(self, server: MemoryServer | None = None) -> None:
        self._server = server or MemoryServer()
        self._watches = Watches()
        self._session_id = self._server.begin(self._watches)

    @property
    def session_id(self) -> int:
        return self._session_id

    async def get(self, path: str) -> Node:
        return self._tree.get(path)

    async def exists(self, path: str) -> Node | None:
        return self._tree.find(path)

    async def read(self, paths: Sequence[str]) -> list[Node | None]:
        return [self._tree.find(path) for path in paths]

    async def children(self, path: str) -> list[str]:
        return self._tree.children(path)

    async def multi(self, operations: Sequence[Operation]) -> list[int]:
        self._check_lives()
        return self._server.apply(operations, self._session_id)

    def watch(self, path: str, watcher: Watcher) -> None:
        self._watches.add(path, watcher)

    async def close(self) -> None:
        self._server.end(self._session_id)

    @property
    def _tree(self) -> Tree:
        self._check_lives()
        return self._server.tree

    def _check_lives(self) -> None:
        if not self._server.lives(self._session_id):
            raise StoreUnavailableError("the session with the metadata store has ended")
