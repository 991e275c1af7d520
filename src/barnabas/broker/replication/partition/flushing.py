"""Decides when to fsync a replica's records (``flush.messages``, ``flush.ms``, ``barnabas.acks.fsync``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from barnabas.base.environment.blocking import Pool
from barnabas.base.errors import KafkaError
from barnabas.base.types import Offset
from barnabas.broker.storage.truncation import cut_in_parts

if TYPE_CHECKING:
    from barnabas.broker.storage import PartitionLog

P = TypeVar("P")

#: seconds before another attempt after an fsync failed for lack of files or memory
_AGAIN_SECONDS = 0.5
#: one thread fsyncs the files of a flush if there are no more of them; otherwise several threads do
_FILES_OF_ONE_THREAD = 8
_THREADS = 3
#: a flush.ms of at least this counts as never; timers accept no longer time
_NEVER_MS = 2**48
#: the default of flush.messages: never
_NEVER = 2**63 - 1


class FlushSchedule(Generic[P]):
    """Decides when a replica's log is fsynced, and runs the fsyncs.

    Args:
        log: the replica's log.
        every: number of records after which to fsync; None for the topic's ``flush.messages``.
        partition: partition of the log.
        on_due: called with the partition when records must be fsynced.
    """

    __slots__ = (
        "_due",
        "_durable",
        "_every",
        "_is_cancelled",
        "_is_telling_of_cut",
        "_log",
        "_on_due",
        "_partition",
        "_timer",
    )

    def __init__(
        self, log: PartitionLog, every: int | None, partition: P, on_due: Callable[[P], None]
    ) -> None:
        self._log = log
        self._every = every
        self._partition = partition
        self._on_due = on_due
        #: records before this offset must be fsynced before they count, also those from before a crash
        self._due: Offset = log.log_end_offset if self._is_much_unsynced else 0
        #: whether a flush is under way that makes a truncation durable
        self._is_telling_of_cut = False
        self._durable: asyncio.Future[None] | None = None
        self._is_cancelled = False
        self._timer: asyncio.TimerHandle | None = None

    def safe_end(self) -> Offset:
        """Return the end of the records that this replica can acknowledge.

        This is the log end. While the settings require an fsync of records, it is the end of the records that
        are on disk.
        """
        log = self._log
        due = self._due
        return log.log_end_offset if not due or due <= log.recovery_point else log.recovery_point

    def appended(self) -> Offset:
        """After an append, request an fsync if the settings require one.

        Return the end of the records that this replica can acknowledge now (`safe_end`).
        """
        # It is called for each batch: so it does without the properties.
        log = self._log
        config = log.config
        files = log.files
        end = log.log_end_offset
        every = config.flush_messages if self._every is None else self._every
        if end - files.recovery_point >= every:
            self._due = end
            self._on_due(self._partition)
        elif files.has_rolled:
            self._on_due(self._partition)
        elif config.flush_ms < _NEVER_MS and self._timer is None:
            self._wait(config.flush_ms / 1000)
        return end if self._due <= files.recovery_point else files.recovery_point

    @property
    def is_never_due(self) -> bool:
        """Whether an append needs no fsync, unless the append begins a new segment.

        The result is True with the default settings ``flush.messages`` and ``flush.ms``, which require no
        fsync. If an fsync was due under earlier settings, the result stays False.
        """
        config = self._log.config
        every = config.flush_messages if self._every is None else self._every
        return every >= _NEVER and config.flush_ms >= _NEVER_MS and not self._due

    @property
    def _is_much_unsynced(self) -> bool:
        """Whether ``flush.messages`` (or `every`) records or more are not fsynced yet."""
        log = self._log
        every = log.config.flush_messages if self._every is None else self._every
        return log.log_end_offset - log.recovery_point >= every

    def truncated(self) -> None:
        """Request the fsync that makes a truncation of the log durable.

        Records that the truncation has removed no longer require an fsync.
        """
        self._due = min(self._due, self._log.log_end_offset)
        self.flush_if_due()

    def flush_if_due(self) -> None:
        """Request an fsync if the settings require it, even if no more records are appended.

        Also request it if a truncation must wait for it, because the log has moved to another log directory.
        """
        files = self._log.files
        if files.has_rolled or files.has_unflushed_switch or not self.is_durable:
            self._on_due(self._partition)

    @property
    def is_durable(self) -> bool:
        """Whether all records that require an fsync, and any truncation, are on disk."""
        return (
            not self._log.files.is_cut
            and not self._is_telling_of_cut
            and self.safe_end() >= self._log.log_end_offset
        )

    def durable(self) -> asyncio.Future[None]:
        """Return a future that is done when the log `is_durable`, or when it accepts no more writes.

        If necessary, request the fsync.
        """
        if self._durable is None or self._durable.done():
            self._durable = asyncio.get_running_loop().create_future()
            self._tell_durable()
            self.flush_if_due()
        return self._durable

    def _tell_durable(self) -> None:
        if self._durable is not None and not self._durable.done() and (self._is_cancelled or self.is_durable):
            self._durable.set_result(None)

    async def flush(self, disk: Pool) -> None:
        """Fsync the records appended so far, in a thread.

        If many segments must be fsynced, fsync the first ones, and request another flush for the others. Do
        nothing while a move of the log to another log directory switches the files (`is_held`). At the end of
        the switch, the move requests a flush.

        Args:
            disk: threads that fsync.

        Raises:
            KafkaError: the fsync failed. If the log is not offline, the broker tries again soon.
        """
        if self._log.is_held:
            return
        try:
            for _ in cut_in_parts(self._log):
                await asyncio.sleep(0)
                if self._log.is_held:
                    return
            is_of_cut = self._log.files.is_cut
            flush = self._log.prepare_flush()
            if flush is not None:
                self._is_telling_of_cut = is_of_cut
                environment = self._log.files.env
                began = environment.clock.monotonic()
                try:
                    if len(flush.files) > _FILES_OF_ONE_THREAD:
                        await asyncio.gather(*(disk.run(flush.sync_files) for _ in range(_THREADS)))
                    await disk.run(flush.run)
                except KafkaError:
                    environment.failed_fsyncs += 1
                    raise
                environment.fsyncs.add(environment.clock.monotonic() - began)
                self._is_telling_of_cut = False
                self._log.complete_flush(flush)
                if flush.is_partial:
                    self._on_due(self._partition)
            self._tell_durable()
        except KafkaError:
            if not self._log.is_offline:
                if self._timer is not None:
                    self._timer.cancel()  # of flush.ms, which can be hours
                self._wait(_AGAIN_SECONDS)
            raise

    def cancel(self) -> None:
        """Stop the timer for flushes, because the log accepts no more writes.

        Complete the future that `durable` has returned. Futures that `durable` returns later are complete at
        once. So nothing waits for an fsync any more.
        """
        self._is_cancelled = True
        if self._timer is not None:
            self._timer.cancel()
        self._tell_durable()

    def _wait(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        self._on_due(self._partition)
