"""When a replica's records must be fsynced (``flush.messages``, ``flush.ms``, ``barnabas.acks.fsync``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from barnabas.environment.blocking import Pool
from barnabas.errors import KafkaError
from barnabas.types import Offset

if TYPE_CHECKING:
    from barnabas.storage import PartitionLog

P = TypeVar("P")

#: what could not be fsynced for want of files or memory is tried again after so long
_AGAIN_SECONDS = 0.5
#: a flush.ms beyond this is as good as never, and more than a timer takes
_NEVER_MS = 2**48


class FlushSchedule(Generic[P]):
    """The fsyncs that a replica's log is due, in either role.

    Args:
        log: the replica's log.
        every: fsync after so many records, when that is fewer than the topic's ``flush.messages``.
        partition: whose log it is.
        on_due: told the partition when records are due to be fsynced.
    """

    __slots__ = ("_due", "_every", "_log", "_on_due", "_partition", "_timer")

    def __init__(
        self, log: PartitionLog, every: int | None, partition: P, on_due: Callable[[P], None]
    ) -> None:
        self._log = log
        self._every = every
        self._partition = partition
        self._on_due = on_due
        #: what lies below must be fsynced before it counts
        self._due: Offset = 0
        self._timer: asyncio.TimerHandle | None = None

    def safe_end(self) -> Offset:
        """The end of what this replica may count as its own."""
        log = self._log
        due = self._due
        return log.log_end_offset if not due or due <= log.recovery_point else log.recovery_point

    def appended(self) -> None:
        """See to it that what was appended reaches the disk in time."""
        log = self._log
        config = log.config
        every = config.flush_messages if self._every is None else self._every
        if log.log_end_offset - log.recovery_point >= every:
            self._due = log.log_end_offset
            self._on_due(self._partition)
        elif log.has_rolled:
            self._on_due(self._partition)
        elif config.flush_ms < _NEVER_MS and self._timer is None:
            self._wait(config.flush_ms / 1000)

    async def flush(self, disk: Pool) -> None:
        """Fsync what has been appended so far, in a thread.

        Raises:
            KafkaError: it failed; if the log is not offline now, it is tried again soon.
        """
        try:
            flush = self._log.prepare_flush()
            if flush is not None:
                await disk.run(flush.run)
                self._log.complete_flush(flush)
        except KafkaError:
            if not self._log.is_offline and self._timer is None:
                self._wait(_AGAIN_SECONDS)
            raise

    def cancel(self) -> None:
        """The log takes no more writes."""
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        self._on_due(self._partition)
