"""Compacts logs in the background.

A thread compacts the log with the largest dirty ratio. The event loop then replaces the log's segments.

A log is not compacted while it moves to another log directory, as in Apache Kafka. If two cleanings removed a
tombstone during the copying, the copy could have the deleted value without the tombstone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from barnabas.base.environment.environment import Environment
from barnabas.base.errors import KafkaError
from barnabas.base.tasks import start_task
from barnabas.base.text import logger_of
from barnabas.base.types import Offset, TopicPartition
from barnabas.broker.logs import LogDirectory
from barnabas.broker.logs.manager import LogManager
from barnabas.broker.storage import Cleaning, CleaningCancelled, Dirtiness, PartitionLog, Throttle, dirtiness
from barnabas.broker.storage.dirtiness import roll_overdue
from barnabas.broker.storage.harm import Harm, harm_of, may_pass
from barnabas.broker.storage.segment import LogSegment
from barnabas.broker.view import BrokerView

logger = logger_of(__name__)

T = TypeVar("T")


class Compactable(Protocol):
    """The part of a partition that the cleaner uses."""

    @property
    def log(self) -> PartitionLog: ...

    @property
    def unavailable(self) -> KafkaError | None:
        """The error for requests after the topic was deleted; None before."""


P = TypeVar("P", bound=Compactable)

#: longest sleep: a timer accepts no longer one, and a setting may be any number
_DAY_MS = 86_400_000
#: longest time between attempts to clean a log that keep failing: its damaged segment may have gone
_MAX_WAIT_MS = 3_600_000
#: the same after a failure for lack of space, memory or open files, which a user can end at any time
_MAX_PASSING_WAIT_MS = 300_000
#: how many logs are checked in one turn of the event loop
_LOGS_A_TURN = 100


class CleaningFailure(NamedTuple):
    """A failed cleaning of a log, which delays the next attempt."""

    log: PartitionLog
    error: Exception
    #: number of failures without a success between them
    failures: int
    #: time of the failure, in milliseconds since 1970
    since_ms: int
    #: milliseconds until the next attempt
    wait_ms: int

    def holds(self, now_ms: int) -> bool:
        """Whether the next attempt must still wait. If the clock was set back, it does not wait."""
        return self.since_ms <= now_ms < self.since_ms + self.wait_ms


class LogCleaner(Generic[P]):
    """Compacts the logs of a broker, in threads of its own. Only the event loop may call the methods.

    Args:
        view: settings of the broker.
        partitions: partitions of this broker.
        logs: logs of these partitions.
        environment: provides the clock and the threads.
        flush: called with a partition whose log must be fsynced, because only records on disk are cleaned.
            It requests the fsync and returns at once.
    """

    def __init__(
        self,
        view: BrokerView,
        partitions: Iterable[P],
        logs: LogManager,
        environment: Environment,
        flush: Callable[[P], None],
    ) -> None:
        self._view = view
        self._partitions = partitions
        self._logs = logs
        self._clock = environment.clock
        self._flush = flush
        config = view.config
        self._threads = config.log_cleaner_threads if config.log_cleaner_enable else 0
        self._throttle = Throttle(self._clock, lambda: view.config.log_cleaner_io_max_bytes_per_second)
        self._pool = environment.blocking.pool("cleaner", max(self._threads, 1))
        self._new_signal = environment.blocking.signal
        self._workers: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._at_work: dict[TopicPartition, Cleaning] = {}
        self._setbacks: dict[TopicPartition, CleaningFailure] = {}
        #: numbers of completed and of failed cleanings, and the bytes of the completed ones
        self.cleanings = self.failures = self.bytes_read = self.bytes_written = 0

    @property
    def uncleanable(self) -> dict[TopicPartition, Exception]:
        """The errors of logs whose last cleaning has failed, by partition.

        The cleaning of each of these logs is tried again after a while.
        """
        return {name: setback.error for name, setback in self._setbacks.items()}

    def start(self) -> None:
        if not self._threads:
            return
        self._workers = [start_task(self._work(), "cleaner", is_vital=True) for _ in range(self._threads)]

    async def stop(self) -> None:
        """Cancel running cleanings and wait for their threads. An interrupted cleaning does no harm."""
        self._stopping.set()
        for cleaning in self._at_work.values():
            cleaning.cancel()
        await asyncio.gather(*self._workers)
        await self._pool.close()

    async def _work(self) -> None:
        while not self._stopping.is_set():
            try:
                was_cleaned = await self.clean_dirtiest()
            except Exception:
                logger.exception("the cleaner failed")
                was_cleaned = False
            if not was_cleaned:
                backoff_ms = min(max(self._view.config.log_cleaner_backoff_ms, 1), _DAY_MS)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), backoff_ms / 1000)

    async def clean_dirtiest(self) -> bool:
        """Clean the log with the largest dirty ratio. Return whether a log was cleaned.

        A log is cleaned if its dirty ratio is above ``min.cleanable.dirty.ratio``, or if its dirty records
        are older than ``max.compaction.lag.ms``. Return False if there is no such log, or if the cleaning was
        cancelled or has failed. A failure delays the next cleaning of this log (`_put_off`).
        """
        found = await self._dirtiest()
        if found is None:
            return False
        log, dirt = found
        name = log.topic_partition
        directory = self._logs.directory_of(name)
        config = self._view.config
        cleaning = self._at_work[name] = Cleaning(
            log,
            dirt,
            now_ms=self._clock.now_ms(),
            map_bytes=config.log_cleaner_dedupe_buffer_size // self._threads,
            block_bytes=config.log_cleaner_io_buffer_size // self._threads // 2,
            throttle=self._throttle,
            cancelled=self._new_signal(),
        )
        try:
            await self._clean(log, directory, cleaning)
        except CleaningCancelled:
            return False
        except Exception as error:
            if self._is_current(log, cleaning):  # otherwise its files changed while they were read
                self._put_off(log, error)
            return False
        finally:
            del self._at_work[name]
        self._setbacks.pop(name, None)
        self.cleanings += 1
        self.bytes_read += cleaning.bytes_read
        self.bytes_written += cleaning.bytes_written
        logger.info(
            "%s: cleaned up to offset %d, read %d bytes, wrote %d",
            name,
            cleaning.end,
            cleaning.bytes_read,
            cleaning.bytes_written,
        )
        return True

    async def _dirtiest(self) -> tuple[PartitionLog, Dirtiness] | None:
        """Return the log to clean next, and the range of offsets to clean (`Dirtiness`).

        This is the log with the largest dirty ratio among the logs that need a cleaning
        (`Dirtiness.is_worth_it`). Return None if there is none.
        """
        now_ms = self._clock.now_ms()
        found: list[tuple[PartitionLog, Dirtiness]] = []
        before = dict(self._setbacks)
        still_there: set[TopicPartition] = set()
        for number, partition in enumerate(self._partitions, 1):
            if number % _LOGS_A_TURN == 0:
                await asyncio.sleep(0)
            log = partition.log
            name = log.topic_partition
            setback = self._setbacks.get(name)
            if setback is not None and setback.log is log:
                still_there.add(name)
            if partition.unavailable is not None or log.is_offline or name in self._at_work:
                continue
            if setback is not None and setback.log is log and setback.holds(now_ms):
                continue
            try:
                await self._settle_swap(log)
                if not log.config.is_compacted or self._logs.copy_of(name) is not None:
                    continue
                dirt = self._find_dirtiness(partition, now_ms)
            except Exception as error:
                self._put_off(log, error)
                continue
            if dirt.is_worth_it(log.config.min_cleanable_dirty_ratio):
                found.append((log, dirt))
        for name in before.keys() - still_there:
            if self._setbacks.get(name) is before[name]:
                del self._setbacks[name]
        free = (item for item in found if item[0].topic_partition not in self._at_work and not item[0].closed)
        return max(free, key=lambda item: item[1].ratio, default=None)

    async def _settle_swap(self, log: PartitionLog) -> None:
        """Complete or undo a replacement of segments by a cleaned segment, if an error interrupted it.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the log's files cannot be changed.
            OSError: the log's folder cannot be fsynced.
        """
        files = log.files
        if files.swap is not None:
            with log.guarded():
                removal = files.settle_swap()
            if removal is not None:
                self._logs.remove_later(log.env.path, removal, log.config.file_delete_delay_ms)
            await self._in_thread(partial(files.env.fs.sync_directory, files.path))
            files.forget_cancelled_swap()

    def _find_dirtiness(self, partition: P, now_ms: int) -> Dirtiness:
        log = partition.log
        roll_overdue(log, now_ms)
        # Only flushed segments can be cleaned, and the markers of their transactions must be flushed.
        # Transaction indexes that an earlier cleaning has changed need new checksums. The flush does all of
        # this. The cleaner finds these segments when it next searches for work.
        sealed_to = log.files.segments.active.base_offset
        is_behind = log.recovery_point < sealed_to or log.stable_point < min(
            log.last_stable_offset, sealed_to
        )
        if log.files.are_checksums_due or is_behind:
            self._flush(partition)
        directory = self._logs.directory_of(log.topic_partition)
        return dirtiness(log, directory.cleaned_to.get(log.topic_partition), now_ms)

    async def _clean(self, log: PartitionLog, directory: LogDirectory, cleaning: Cleaning) -> None:
        await self._in_thread(cleaning.index)
        if log.topic_partition not in directory.cleaned_to:
            # Offsets that are missing in a log that this checkpoint does not name count as lost.
            self._note_clean(log, directory, cleaning, cleaning.start)
        await self._logs.checkpoints.write(directory, LogDirectory.cleaned_checkpoint)
        # Recovery takes offsets that are missing after the recovery point for lost records. So the recovery
        # point on disk must be after all records that this cleaning leaves out.
        await self._logs.checkpoints.write(directory, LogDirectory.recovery_point_checkpoint)
        for group in cleaning.groups():
            cleaned = await self._in_thread(partial(cleaning.clean, group))
            await self._put_in_place(log, cleaning, cleaned, group)
        self._note_clean(log, directory, cleaning, cleaning.end)
        await self._logs.checkpoints.write(directory, LogDirectory.cleaned_checkpoint)

    def _note_clean(
        self, log: PartitionLog, directory: LogDirectory, cleaning: Cleaning, end: Offset
    ) -> None:
        if not self._is_current(log, cleaning):
            raise CleaningCancelled(f"{log.topic_partition} has changed during the cleaning")
        directory.note_clean(log.topic_partition, end)

    async def _put_in_place(
        self, log: PartitionLog, cleaning: Cleaning, cleaned: LogSegment, group: Sequence[LogSegment]
    ) -> None:
        is_wanted = (
            self._is_current(log, cleaning)
            and log.config.is_compacted
            and log.files.segments.index_of_run(group) is not None
        )
        if not is_wanted:
            cleaning.discard(cleaned)
            raise CleaningCancelled(f"{log.topic_partition} has changed during the cleaning")
        sync = partial(log.files.env.fs.sync_directory, log.files.path)
        try:
            with log.guarded() as files:
                files.begin_swap(cleaned, group)
        except KafkaError:
            with suppress(KafkaError, OSError):
                await self._settle_swap(log)
            raise
        await self._in_thread(sync)
        with log.guarded() as files:  # after an error, the cleaner's next check settles the swap
            removal = files.finish_swap()
        if removal is None:
            raise CleaningCancelled(f"{log.topic_partition} was truncated during the cleaning")
        self._logs.remove_later(log.env.path, removal, log.config.file_delete_delay_ms)
        await self._in_thread(sync)

    def _is_current(self, log: PartitionLog, cleaning: Cleaning) -> bool:
        """Whether the log is in use, and has not changed or begun to move since its cleaning began."""
        return (
            not log.is_offline
            and log.files.truncation_epoch == cleaning.truncation_epoch
            and self._logs.copy_of(log.topic_partition) is None
        )

    def _put_off(self, log: PartitionLog, error: Exception) -> None:
        """Log the failure of a cleaning, and delay the next cleaning of this log.

        If the log is already offline, do nothing. If the disk of the log directory has failed, take the log
        directory offline instead.
        """
        if log.is_offline:
            return  # logged when it went offline
        if isinstance(error, OSError) and harm_of(error) is Harm.DIRECTORY:
            log.files.env.fail(error)
            return
        self.failures += 1
        name = log.topic_partition
        before = self._setbacks.get(name)
        failures = before.failures + 1 if before is not None and before.log is log else 1
        backoff_ms = max(self._view.config.log_cleaner_backoff_ms, 1)
        is_passing = may_pass(error) or may_pass(error.__cause__)
        longest_ms = _MAX_PASSING_WAIT_MS if is_passing else _MAX_WAIT_MS
        wait_ms = min(backoff_ms * 2 ** min(failures, 20), longest_ms)
        self._setbacks[name] = CleaningFailure(log, error, failures, self._clock.now_ms(), wait_ms)
        is_bug = not isinstance(error, KafkaError | OSError)
        logger.error(
            "%s in %s could not be cleaned, it is tried again in %d s: %s",
            name,
            log.files.env.path,
            (wait_ms + 999) // 1000,
            error if not is_bug else repr(error),
            exc_info=error if is_bug else None,
        )

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await self._pool.run(work)
