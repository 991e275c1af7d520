"""The tree of a metadata store in files. Each transaction is on disk before any client sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

from barnabas.base.environment.blocking import Pool
from barnabas.base.environment.environment import Environment
from barnabas.base.tasks import start_task
from barnabas.broker.metadata.copies import JournalCopies
from barnabas.broker.metadata.store import Operation, StoreError, StoreUnavailableError
from barnabas.broker.metadata.tree import Change, Tree

#: the number of changes reported in one turn of the event loop
_REPORTED_A_TURN = 500

#: Function that receives durable changes in their order, before the response to their transaction.
ChangeListener: TypeAlias = Callable[[Sequence[Change]], None]
#: Function that makes a transaction's operations from the tree to which they will be applied.
Planned: TypeAlias = Callable[[Tree], Sequence[Operation]]


class Transaction:
    """A queued transaction. `session` is the id of the session that owns its new ephemeral nodes.

    The result of the future `done` is the list that `MetadataStore.multi` returns, or the error. After an
    error, the attribute `versions` has an entry for each operation before the failed one.
    """

    __slots__ = ("done", "operations", "session", "versions")

    def __init__(
        self, operations: Sequence[Operation] | Planned, session: int, done: asyncio.Future[list[int]]
    ) -> None:
        self.operations = operations
        self.session = session
        self.done = done
        self.versions: list[int] = []

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    def succeed(self) -> None:
        if not self.done.done():
            self.done.set_result(self.versions)


class DurableTree:
    """A tree of nodes in memory, and two copies of its journal on disk (`barnabas.broker.metadata.copies`).

    Ephemeral nodes are not in the journal, because all sessions end with the process. Transactions that
    arrive during an fsync share the next fsync. Only one process at a time can open the files.

    Args:
        on_changes: called with changes when they are on disk.
        disk: the copies, and the thread that writes them; None for a tree only in memory.
    """

    def __init__(self, on_changes: ChangeListener, disk: tuple[JournalCopies, Pool] | None = None) -> None:
        self._on_changes = on_changes
        self._disk = disk
        self._tree: Tree | None = Tree()
        if disk is not None:
            journal = disk[0].journal
            self._tree = Tree(journal.nodes.items(), journal.transaction)
        #: held while the tree is ahead of the disk
        self._settled = asyncio.Lock()
        self._pending: list[Transaction] = []
        self._writer: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        environment: Environment,
        folders: Sequence[str | Path],
        on_changes: ChangeListener,
        before_new: Callable[[], None] | None = None,
    ) -> DurableTree:
        """Open the store's files in `folders`. Create new files if there are none.

        Args:
            environment: file system, threads and random numbers.
            folders: log directories of the broker.
            on_changes: called on the event loop with changes that are on disk, in the order of the
            transactions.
            before_new: called in a thread before new files are created; it can raise to prevent this.

        Raises:
            StoreUnavailableError: another process has the files, they are damaged beyond repair, or the disk
                fails.
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
        return cls(on_changes, (copies, thread))

    @property
    def transaction(self) -> int:
        """Number of the last transaction."""
        return self._open_tree().transaction

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Tree]:
        """Enter a context in which no transaction changes the tree, and all of its changes are on disk.

        Raises:
            StoreUnavailableError: the tree is closed.
        """
        async with self._settled:
            yield self._open_tree()

    def submit(self, operations: Sequence[Operation] | Planned, session: int) -> Transaction:
        """Queue a transaction. Transactions are applied in the order of these calls.

        `operations` can be a function of the present tree that returns the operations. It is called when all
        earlier transactions are applied. `session` is the id of the session that owns new ephemeral nodes.

        Raises:
            StoreUnavailableError: the tree is closed.
        """
        self._open_tree()
        transaction = Transaction(operations, session, asyncio.get_running_loop().create_future())
        self._pending.append(transaction)
        if self._writer is None:
            self._writer = start_task(self._write_pending(), "metadata store writer", is_vital=True)
        return transaction

    def check_open(self) -> None:
        """Raise StoreUnavailableError after `close`."""
        self._open_tree()

    async def close(self) -> bool:
        """Write the queued transactions, and close the files. Return False if the tree was already closed."""
        while self._writer is not None:
            await self._writer
        if self._tree is None:
            return False
        self._tree = None
        if self._disk is not None:
            copies, thread = self._disk
            await thread.run(copies.close)
            await thread.close()
        return True

    async def _write_pending(self) -> None:
        try:
            while self._pending:
                async with self._settled:
                    batch, self._pending = self._pending, []
                    await self._write(batch)
        finally:
            self._writer = None

    async def _write(self, batch: list[Transaction]) -> None:
        """Apply transactions, write their changes to the disk, and report the outcomes.

        If the disk fails, all of them fail: a transaction can have been rejected because of an earlier one
        that is taken back.
        """
        tree = self._open_tree()
        changes: list[Change] = []
        rejected: dict[Transaction, Exception] = {}
        for transaction in batch:
            made: list[Change] = []
            try:
                operations = transaction.operations
                if callable(operations):
                    operations = operations(tree)
                for _ in tree.apply_in_steps(operations, transaction.session, transaction.versions, made):
                    await asyncio.sleep(0)  # no reader sees it meanwhile: it is not settled
            except (StoreError, ValueError) as error:
                rejected[transaction] = error
            else:
                changes += made
        try:
            if self._disk is not None and not all(map(_is_of_session_only, changes)):
                copies, thread = self._disk
                await thread.run(copies.commit, changes, tree.transaction)
        except Exception as error:  # whatever it is: no caller may wait without end
            tree.undo(changes)
            for transaction in batch:
                transaction.fail(error)
            return
        for start in range(0, len(changes), _REPORTED_A_TURN):
            if start:
                await asyncio.sleep(0)
            self._on_changes(changes[start : start + _REPORTED_A_TURN])
        for transaction in batch:
            if transaction in rejected:
                transaction.fail(rejected[transaction])
            else:
                transaction.succeed()

    def _open_tree(self) -> Tree:
        if self._tree is None:
            raise StoreUnavailableError("the metadata store is closed")
        return self._tree


def _is_of_session_only(change: Change) -> bool:
    """Whether a change has no effect after a restart: it changes only the data of an ephemeral node.

    The creation of an ephemeral node has an effect, because the number of its transaction must not be used
    again.
    """
    return change.before is not None and change.after is not None and change.after.owner != 0
