"""Shares fsyncs between many requests, for ``barnabas.acks.fsync``.

While one round of fsyncs runs in threads, appends continue. The next round fsyncs the logs that they changed.
So the more requests wait, the more requests share one fsync. A round has at most `_AT_ONCE` logs. If at most
`_AT_ONCE` logs have changed, no request waits for more than two rounds.

A round ends when its slowest fsync ends. So each log directory has rounds and threads of its own: a disk that
hangs delays no log on another disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from barnabas.base.environment.blocking import Blocking, Pool
from barnabas.base.tasks import start_task
from barnabas.base.text import logger_of
from barnabas.base.types import TopicPartition

logger = logger_of(__name__)

#: partitions flushed in one round: each holds its files open meanwhile
_AT_ONCE = 256
#: threads for the fsyncs of one log directory
_THREADS = 4


class Flushable(Protocol):
    """A partition whose log can be fsynced."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def log_dir(self) -> str:
        """The path of the log directory with the log."""

    async def flush(self, disk: Pool) -> None:
        """Fsync appended records in a thread, and then advance the high watermark."""


class SharedFsync:
    """Makes appended records of the logs in one log directory durable, and then advances the high watermarks.

    Args:
        log_dir: path of the log directory.
        disk: threads that fsync.
        pass_on: called with a partition whose log has moved to another log directory while it waited here.
    """

    def __init__(self, log_dir: str, disk: Pool, pass_on: Callable[[Flushable], None]) -> None:
        self._log_dir = log_dir
        self._disk = disk
        self._pass_on = pass_on
        self._dirty: dict[Flushable, None] = {}
        self._round: asyncio.Task[None] | None = None

    def add(self, partition: Flushable) -> None:
        """Have `partition` flushed in the next round, because records were appended to it."""
        self._dirty[partition] = None
        if self._round is None:
            self._round = start_task(self._run(), "shared fsync", is_vital=True)

    @property
    def is_busy(self) -> bool:
        """Whether added partitions are not flushed yet."""
        return self._round is not None

    async def stop(self) -> None:
        """Wait until all added partitions are flushed."""
        if self._round is not None:
            await self._round

    async def _run(self) -> None:
        try:
            while self._dirty:
                due = list(islice(self._dirty, _AT_ONCE))
                partitions = []
                for partition in due:
                    del self._dirty[partition]
                    if partition.log_dir == self._log_dir:
                        partitions.append(partition)
                    else:  # a round of that directory may flush it now, and a log has one flush at a time
                        self._pass_on(partition)
                flushes = (partition.flush(self._disk) for partition in partitions)
                outcomes = await asyncio.gather(*flushes, return_exceptions=True)
                for partition, outcome in zip(partitions, outcomes, strict=True):
                    if isinstance(outcome, Exception):  # a bug: the others are flushed nevertheless
                        logger.error("%s could not be flushed", partition.topic_partition, exc_info=outcome)
        finally:
            self._round = None


class FsyncsByDirectory:
    """One `SharedFsync` for each log directory of a broker.

    Args:
        blocking: provides the threads.
    """

    def __init__(self, blocking: Blocking) -> None:
        self._blocking = blocking
        self._by_directory: dict[str, SharedFsync] = {}
        self._pools: list[Pool] = []
        self._is_stopped = False

    def add(self, partition: Flushable) -> None:
        """Have `partition` flushed in the next round of its log directory. After `stop`, do nothing."""
        if self._is_stopped:
            return
        shared = self._by_directory.get(partition.log_dir)
        if shared is None:
            pool = self._blocking.pool("fsyncs", _THREADS)
            self._pools.append(pool)
            shared = self._by_directory[partition.log_dir] = SharedFsync(partition.log_dir, pool, self.add)
        shared.add(partition)

    async def stop(self) -> None:
        """Wait until all added partitions are flushed."""
        while busy := [each for each in self._by_directory.values() if each.is_busy]:
            await asyncio.gather(*(each.stop() for each in busy))
        self._is_stopped = True
        for pool in self._pools:
            await pool.close()
