"""A metadata store in one SQLite file beside the data: all that a single broker needs."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from barnabas.metadata.operations import SingleOperations
from barnabas.metadata.store import Node, Operation, StoreError, StoreUnavailableError, Watcher
from barnabas.metadata.tree import Change, Tree
from barnabas.metadata.watches import Watches
from barnabas.storage.filesystem import PRIVATE_FILE

#: Raised when the tables change, so that an older Barnabas refuses a newer file.
SCHEMA_VERSION = 1

_SESSION = 1


class EmbeddedStore(SingleOperations):
    """The tree in memory, each transaction on disk before anyone sees it.

    The file holds two tables: ``node(path, data, version, created)`` and ``state(transaction_id)``. Ephemeral
    nodes stay out of it: the one session there is ends with the process. Writes that come while another is
    being fsynced share the next fsync. Only one process at a time can open a file.
    """

    def __init__(self, database: _Database, tree: Tree, executor: ThreadPoolExecutor) -> None:
        self._database = database
        self._executor = executor
        self._tree: Tree | None = tree
        self._watches = Watches()
        #: held while the tree is ahead of the disk
        self._settled = asyncio.Lock()
        self._pending: list[tuple[Sequence[Operation], asyncio.Future[list[int]]]] = []
        self._writer: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, path: Path) -> EmbeddedStore:
        """Open a store, making the file when there is none.

        Raises:
            StoreUnavailableError: another process has it, it is no store of ours, or its disk fails.
        """
        executor = ThreadPoolExecutor(1, thread_name_prefix="barnabas-metadata")
        try:
            database, tree = await asyncio.get_running_loop().run_in_executor(executor, _Database.open, path)
        except StoreUnavailableError:
            executor.shutdown(wait=False)
            raise
        return cls(database, tree, executor)

    @property
    def session_id(self) -> int:
        return _SESSION

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
            self._writer = asyncio.create_task(self._write_pending(), name="metadata store writer")
        return await done

    def watch(self, path: str, watcher: Watcher) -> None:
        self._watches.add(path, watcher)

    async def close(self) -> None:
        while self._writer is not None:
            await self._writer
        if self._tree is None:
            return
        self._tree = None
        self._watches.clear()
        await asyncio.get_running_loop().run_in_executor(self._executor, self._database.close)
        self._executor.shutdown()

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
            try:
                versions, made = tree.apply(operations, _SESSION)
            except (StoreError, ValueError) as error:
                _fail(done, error)
            else:
                changes += made
                applied.append((versions, done))
        try:
            await asyncio.get_running_loop().run_in_executor(
                self._executor, self._database.write, changes, tree.transaction
            )
        except Exception as error:  # whatever it is: nobody may wait for ever
            tree.undo(changes)
            for _, done in applied:
                _fail(done, error)
            return
        self._watches.report(changes)
        for versions, done in applied:
            if not done.done():
                done.set_result(versions)

    def _open_tree(self) -> Tree:
        if self._tree is None:
            raise StoreUnavailableError("the metadata store is closed")
        return self._tree


class _Database:
    """The SQLite file; every method runs in the store's one thread."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection

    @classmethod
    def open(cls, path: Path) -> tuple[_Database, Tree]:
        connection: sqlite3.Connection | None = None
        try:
            path.touch(mode=PRIVATE_FILE)  # SQLite would let others read it
            connection = sqlite3.connect(path, timeout=0, isolation_level=None)
            # EXCLUSIVE keeps other processes out; FULL fsyncs every commit, not only checkpoints.
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            tree = _load(connection, path)
        except (sqlite3.Error, OSError) as error:
            if connection is not None:
                connection.close()
            if "locked" in str(error):
                raise StoreUnavailableError(f"{path} is in use by another broker: stop it first") from error
            raise StoreUnavailableError(f"{path} cannot be opened as a metadata store: {error}") from error
        except StoreUnavailableError:
            assert connection is not None
            connection.close()
            raise
        return cls(path, connection), tree

    def write(self, changes: Sequence[Change], transaction: int) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for change in changes:
                if change.after is None:
                    self._connection.execute("DELETE FROM node WHERE path = ?", (change.path,))
                elif not change.after.owner:
                    row = (change.path, change.after.data, change.after.version, change.after.created)
                    self._connection.execute("INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?)", row)
            self._connection.execute("UPDATE state SET transaction_id = ?", (transaction,))
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise StoreUnavailableError(f"{self._path} cannot be written: {error}") from error

    def close(self) -> None:
        self._connection.close()


def _load(connection: sqlite3.Connection, file: Path) -> Tree:
    (schema,) = connection.execute("PRAGMA user_version").fetchone()
    if schema == 0:
        connection.executescript(
            f"""
            BEGIN EXCLUSIVE;
            CREATE TABLE node (path TEXT PRIMARY KEY, data BLOB NOT NULL, version INTEGER NOT NULL,
                               created INTEGER NOT NULL) WITHOUT ROWID;
            CREATE TABLE state (transaction_id INTEGER NOT NULL);
            INSERT INTO state VALUES (0);
            PRAGMA user_version = {SCHEMA_VERSION};
            COMMIT;
            """
        )
    elif schema != SCHEMA_VERSION:
        raise StoreUnavailableError(
            f"{file} has format {schema}, this Barnabas reads {SCHEMA_VERSION}: use the version that wrote it"
        )
    (transaction,) = connection.execute("SELECT transaction_id FROM state").fetchone()
    rows = connection.execute("SELECT path, data, version, created FROM node")
    return Tree(((path, Node(*rest)) for path, *rest in rows), transaction)


def _fail(done: asyncio.Future[list[int]], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
