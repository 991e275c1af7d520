"""A metadata store in files beside the data: all that a single broker needs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from barnabas.base.environment.blocking import Pool
from barnabas.base.environment.environment import Environment
from barnabas.base.tasks import start_task
from barnabas.broker.metadata.copies import JournalCopies
from barnabas.broker.metadata.operations import SingleOperations
from barnabas.broker.metadata.session import Session
from barnabas.broker.metadata.store import (
    Cancel,
    Node,
    Operation,
    SessionListener,
    SessionState,
    StoreError,
    StoreUnavailableError,
    Watcher,
)
from barnabas.broker.metadata.tree import Change, Tree
from barnabas.broker.metadata.watches import Watches

_SESSION = 1
#: the number of changes reported to watchers in one turn of the event loop
_REPORTED_A_TURN = 500


class EmbeddedStore(SingleOperations):
    """The tree in memory, each transaction on disk before anyone sees it.

    The files are two copies of a journal (`barnabas.broker.metadata.copies`). Ephemeral nodes stay out of
    them: the one session there is ends with the process. Writes that come while another is being fsynced
    share the next fsync. Only one process at a time can open a store.
    """

    def __init__(self, copies: JournalCopies, thread: Pool) -> None:
        self._copies = copies
        self._thread = thread
        self._tree: Tree | None = Tree(copies.journal.nodes.items(), copies.journal.transaction)
        self._watches = Watches()
        self._session = Session(SessionState.CONNECTED)
        #: held while the tree is ahead of the disk
        self._settled = asyncio.Lock()
        self._pending: list[tuple[Sequence[Operation], asyncio.Future[list[int]]]] = []
        self._writer: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        environment: Environment,
        *folders: str | Path,
        before_new: Callable[[], None] | None = None,
    ) -> EmbeddedStore:
        """Open the store in `folders`, a broker's log directories; create a new one if there is none.

        `before_new` is called, in a thread, before the creation, and may raise to prevent it.

        Raises:
            StoreUnavailableError: another process has it, it is damaged beyond repair, or its disk fails.
        """
        thread = environment.blocking.pool("metadata", 1)
        try:
            copies = await thread.run(
                JournalCopies.open,
                environment.filesystem,
                [str(folder) for folder in folders],
                environment.random,
                before_new,
            )
        except BaseException:
            await thread.close()
            raise
        return cls(copies, thread)

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

    async def get(self, path: str) -> Node:
        async with self._settled:
            return self._open_tree().get(path)

    async def exists(self, path: str) -> Node | None:
        async with self._settled:
            return self._open_tree().find(path)

    async def read(self, paths: Sequence[str]) -> list[Node | None]:
        async with self._settled:
            tree = self._open_tree()
            return [tree.find(path) for path in paths]

    async def children(self, path: str) -> list[str]:
        async with self._settled:
            return self._open_tree().children(path)

    async def multi(self, operations: Sequence[Operation]) -> list[int]:
        self._open_tree()
        done: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._pending.append((operations, done))
        if self._writer is None:
            self._writer = start_task(self._write_pending(), "metadata store writer", is_vital=True)
        return await done

    async def watch(self, path: str, watcher: Watcher) -> Cancel:
        self._open_tree()
        return self._watches.add(path, watcher)

    async def sync(self) -> None:
        async with self._settled:
            self._open_tree()

    async def close(self) -> None:
        while self._writer is not None:
            await self._writer
        if self._tree is None:
            return
        self._tree = None
        self._watches.clear()
        await self._thread.run(self._copies.close)
        await self._thread.close()
        self._session.enter(SessionState.CLOSED)

    async def _write_pending(self) -> None:
        try:
            while self._pending:
                async with self._settled:
                    batch, self._pending = self._pending, []
                    await self._write(batch)
        finally:
            self._writer = None

    async def _write(self, batch: list[tuple[Sequence[Operation], asyncio.Future[list[int]]]]) -> None:
        tree = self._open_tree()
        changes: list[Change] = []
        applied: list[tuple[list[int], asyncio.Future[list[int]]]] = []
        for operations, done in batch:
            versions: list[int] = []
            made: list[Change] = []
            try:
                for _ in tree.apply_in_steps(operations, _SESSION, versions, made):
                    await asyncio.sleep(0)  # no reader sees it meanwhile: it is not settled
            except (StoreError, ValueError) as error:
                _fail(done, error)
            else:
                changes += made
                applied.append((versions, done))
        try:
            if not all(map(_is_of_session_only, changes)):
                await self._thread.run(self._copies.commit, changes, tree.transaction)
        except Exception as error:  # whatever it is: no caller may wait without end
            tree.undo(changes)
            for _, done in applied:
                _fail(done, error)
            return
        for number, change in enumerate(changes, 1):
            self._watches.report(change.event, change.path)
            if number % _REPORTED_A_TURN == 0:
                await asyncio.sleep(0)
        for versions, done in applied:
            if not done.done():
                done.set_result(versions)

    def _open_tree(self) -> Tree:
        if self._tree is None:
            raise StoreUnavailableError("the metadata store is closed")
        return self._tree


def _is_of_session_only(change: Change) -> bool:
    """Whether a change leaves nothing for a later start: other data of an ephemeral node. One that is made
    does, since the number of its transaction must not be used again."""
    return change.before is not None and change.after is not None and change.after.owner != 0


def _fail(done: asyncio.Future[list[int]], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
