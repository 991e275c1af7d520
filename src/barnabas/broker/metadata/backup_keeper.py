"""Keeps a backup of the cluster's metadata in a broker's log directories.

`barnabas cluster restore` needs the backup if ZooKeeper loses its data.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from barnabas.base.environment.blocking import Pool
from barnabas.base.environment.clock import Clock
from barnabas.base.environment.filesystem import FileSystem, replace_file
from barnabas.base.tasks import start_task, stop_tasks
from barnabas.base.text import logger_of
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.backup import FILE_NAME, back_up, backup_of, encode, is_kept
from barnabas.broker.metadata.reconnection import persistently
from barnabas.broker.metadata.store import Cancel, Event, MetadataStore, SessionState, StoreError

log = logger_of(__name__)

#: seconds between a change and its backup, so that one backup has several changes
_DELAY = 2.0
#: after each backup, the keeper waits for this multiple of the time that the backup took
_REST = 50.0
#: seconds to wait after a failure
_RETRY = 30.0


class BackupKeeper:
    """Writes a new backup to the log directories shortly after each change of the metadata.

    The keeper writes nothing while the store has no cluster, or another cluster than this broker's. So if
    ZooKeeper has lost everything, the last backup is not overwritten.

    Args:
        store: metadata store of the cluster.
        cluster_id: id of the broker's cluster.
        folders: function that returns the log directories that work at the moment.
        fs: file system of the log directories.
        disk: the threads that write the backups.
        clock: gives the time of a backup.
    """

    def __init__(
        self,
        store: MetadataStore,
        cluster_id: str,
        folders: Callable[[], Sequence[str]],
        fs: FileSystem,
        disk: Pool,
        clock: Clock,
    ) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._folders = folders
        self._fs = fs
        self._disk = disk
        self._clock = clock
        self._cancels: list[Cancel] = []
        #: the content of each node at the last read
        self._nodes: dict[str, bytes] = {}
        #: paths to be read again; None for all of them
        self._changed: set[str] | None = None
        #: whether every folder has a backup of the last read
        self._is_written = False
        self._news = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Watch the metadata, and write a backup now and after each change, in a task.

        Raises:
            StoreError: the store cannot be watched.
        """
        self._cancels.append(self._store.on_state(self._on_state))
        watching = await persistently(self._store, lambda: self._store.watch("/", self._on_event))
        self._cancels.append(watching)
        self._news.set()
        self._keeping = start_task(self._keep(), "metadata backup")

    async def stop(self) -> None:
        while self._cancels:
            self._cancels.pop()()
        await stop_tasks(self._keeping)

    def _on_event(self, _event: Event, path: str) -> None:
        if is_kept(path):
            if self._changed is not None:
                self._changed.add(path)
            self._news.set()

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._changed = None
            self._news.set()

    async def _keep(self) -> None:
        while True:
            await self._news.wait()
            await asyncio.sleep(_DELAY)
            self._news.clear()
            began = self._clock.monotonic()
            try:
                await self._write()
            except (StoreError, OSError) as error:
                log.warning("the backup of the metadata is written later: %s", error)
                self._changed = None
                self._news.set()
                await asyncio.sleep(_RETRY)
            else:
                await asyncio.sleep(_REST * (self._clock.monotonic() - began))

    async def _write(self) -> None:
        changed, self._changed = self._changed, set()
        if changed is None:
            before = self._nodes
            backup = await back_up(self._store, self._clock.now_ms())
            self._nodes = {path: data.encode() for path, data in backup.nodes.items()}
            if before == self._nodes and self._is_written:
                return
        else:
            paths = sorted({*changed, znodes.CLUSTER_ID, znodes.CONTROLLER_EPOCH})
            for path, node in zip(paths, await self._store.read(paths), strict=True):
                if node is None:
                    self._nodes.pop(path, None)
                else:
                    self._nodes[path] = node.data
            backup = backup_of(self._nodes, self._clock.now_ms())
        if backup.cluster_id != self._cluster_id:
            log.error("the metadata store has another cluster now, %s: no backup is made", backup.cluster_id)
            return
        self._is_written = False
        data = await self._disk.run(lambda: b"".join(encode(backup)))
        errors = []
        for folder in list(self._folders()):
            try:
                await self._disk.run(replace_file, self._fs, f"{folder}/{FILE_NAME}", data)
            except OSError as error:  # the other folders may be on other disks
                errors.append(error)
        if errors:
            raise errors[0]
        self._is_written = True
