"""A metadata store in the log directories, or only in memory, for a broker that is alone in its cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from barnabas.base.environment.environment import Environment
from barnabas.broker.metadata.durable_tree import DurableTree
from barnabas.broker.metadata.session import StoreSession, Watches
from barnabas.broker.metadata.store import (
    Cancel,
    Operation,
    SessionListener,
    SessionState,
    SingleOperations,
    StoreNode,
    Watcher,
)
from barnabas.broker.metadata.tree import Change

_SESSION = 1


class EmbeddedStore(SingleOperations):
    """A metadata store in this process, with one session, which ends with the process.

    `open` returns a store with files on disk. The constructor makes a store that is only in memory.
    """

    def __init__(self) -> None:
        self._tree = DurableTree(self._report)
        self._watches = Watches()
        self._session = StoreSession(SessionState.CONNECTED)

    @classmethod
    async def open(
        cls, environment: Environment, *folders: str | Path, before_new: Callable[[], None] | None = None
    ) -> EmbeddedStore:
        """Open the store in `folders`, a broker's log directories. Create a new store if there is none.

        `before_new` is called in a thread before the creation, and can raise to prevent it.

        Raises:
            StoreUnavailableError: another process has the store, the store is damaged beyond repair, or its
                disk fails.
        """
        store = cls()
        store._tree = await DurableTree.open(environment, folders, store._report, before_new)
        return store

    @property
    def session_id(self) -> int:
        return _SESSION

    @property
    def session_timeout(self) -> float:
        return 0.0

    @property
    def state(self) -> SessionState:
        return self._session.state

    @property
    def is_certain(self) -> bool:
        return self._session.state is SessionState.CONNECTED

    def on_state(self, listener: SessionListener) -> Cancel:
        return self._session.on_state(listener)

    async def get(self, path: str) -> StoreNode:
        async with self._tree.reading() as tree:
            return tree.get(path)

    async def exists(self, path: str) -> StoreNode | None:
        async with self._tree.reading() as tree:
            return tree.find(path)

    async def read(self, paths: Sequence[str]) -> list[StoreNode | None]:
        async with self._tree.reading() as tree:
            return [tree.find(path) for path in paths]

    async def children(self, path: str) -> list[str]:
        async with self._tree.reading() as tree:
            return tree.children(path)

    async def multi(self, operations: Sequence[Operation]) -> list[int]:
        return await self._tree.submit(operations, _SESSION).done

    async def watch(self, path: str, watcher: Watcher) -> Cancel:
        self._tree.check_open()
        return self._watches.add(path, watcher)

    async def sync(self) -> None:
        async with self._tree.reading():
            pass

    async def close(self) -> None:
        if await self._tree.close():
            self._watches.clear()
            self._session.enter(SessionState.CLOSED)

    def _report(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._watches.report(change.event, change.path)
