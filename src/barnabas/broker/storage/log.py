"""A partition's log: its state, appends and reads.

Only the event loop's thread uses a `PartitionLog`. Its methods do not wait for fsyncs: they prepare slow work
as tasks (`barnabas.broker.storage.tasks`), which any thread can run. Rolling, retention, truncation and
compaction are functions in modules of their own.

Always: log start offset <= last stable offset <= high watermark <= log end offset.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, ParamSpec, Protocol, TypeVar

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import NO_PRODUCER_ID, Buffer, Offset, TopicId, TopicPartition
from barnabas.broker.config import TopicConfig
from barnabas.broker.storage import timestamps
from barnabas.broker.storage.copied_batches import find_copied_batches
from barnabas.broker.storage.environment import LogEnvironment
from barnabas.broker.storage.epochs import FILE_NAME as EPOCH_FILE
from barnabas.broker.storage.epochs import LeaderEpochs
from barnabas.broker.storage.harm import Harm, harm_of
from barnabas.broker.storage.log_files import LogFiles
from barnabas.broker.storage.producer_recovery import note_producer
from barnabas.broker.storage.producers import Origin, Producers
from barnabas.broker.storage.reading import NOTHING, FetchedRecords, find_aborted_transactions, read_batches
from barnabas.broker.storage.rolling import must_roll
from barnabas.broker.storage.segment import LogSegment
from barnabas.broker.storage.tasks import Flush, Replacement
from barnabas.broker.storage.timestamps import OffsetAtTimestamp
from barnabas.broker.storage.transaction_index import AbortedTransaction
from barnabas.broker.storage.validation import ValidBatch, validate_batch
from barnabas.kafka.records.batch import LOG_OVERHEAD, BatchHeader, placed

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

#: no leader epoch is later
NEWEST_EPOCH = 2**31 - 1


class AppendInfo(NamedTuple):
    """The result of an append. `log_append_time_ms` is -1 if records keep the producer's timestamps.

    If `duplicate` is true, the log already had the batch. Then nothing was appended, and the offsets are the
    batch's offsets in the log.
    """

    base_offset: Offset
    last_offset: Offset
    log_append_time_ms: int
    log_start_offset: Offset
    max_timestamp: int
    duplicate: bool


#: makes an `AppendInfo` of its fields, at half the cost of calling the class, for every append
new_info = tuple.__new__


class BoundsListener(Protocol):
    """A listener for moves of a log's start and truncations of its end. Appends do not call it."""

    def bounds_moved(self) -> None:
        """Handle a move of the log's start, or a truncation of its end."""


class PartitionLog:
    """The log of one partition. `load_log` and `new_log` create it, for a `LogDirectory`."""

    __slots__ = (
        "closed",
        "config",
        "env",
        "epochs",
        "failure",
        "files",
        "high_watermark",
        "is_held",
        "listener",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "stable_point",
        "stored_start",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: TopicConfig,
        files: LogFiles,
        *,
        log_start_offset: Offset,
        log_end_offset: Offset,
        epochs: LeaderEpochs,
        producers: Producers,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        #: the topic's settings; a new value takes effect at once
        self.config = config
        self.files = files
        #: the environment of `files`
        self.env: LogEnvironment = files.env
        self.log_start_offset = log_start_offset
        #: the start offset after a crash, if it is lower than `log_start_offset`; else None
        self.stored_start: Offset | None = None
        #: only the package `replication` advances it
        self.high_watermark = log_start_offset
        #: the markers of all transactions that begin before this offset are known to be on disk
        self.stable_point = log_start_offset
        self.log_end_offset = log_end_offset
        self.epochs = epochs
        self.producers = producers
        self.listener: BoundsListener | None = None
        self.closed = False
        #: whether no fsync may begin: the log's files are about to be replaced
        self.is_held = False
        #: the error because of which the log accepts no writes until the next start; else None
        self.failure: Exception | None = None

    def __repr__(self) -> str:
        return f"<PartitionLog {self.topic_partition} {self.log_start_offset}..{self.log_end_offset}>"

    # --- bounds ---

    @property
    def size(self) -> int:
        """The size of all segments in bytes."""
        return sum(segment.size for segment in self.files.segments)

    @property
    def recovery_point(self) -> Offset:
        """The recovery point: the offset before which every record is known to be on disk."""
        return self.files.recovery_point

    @property
    def latest_epoch(self) -> int:
        """The latest leader epoch with records; -1 if there is none."""
        return self.epochs.latest

    @property
    def last_stable_offset(self) -> Offset:
        """The end for read_committed consumers (KIP-98): the last stable offset.

        It is the first offset of the oldest transaction whose marker is not below the high watermark. Without
        such a transaction, it is the high watermark. It is never before the log start offset or after the
        high watermark.
        """
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return max(min(unstable, self.high_watermark), self.log_start_offset)

    def advance_high_watermark(self, offset: Offset) -> bool:
        """Raise the high watermark to `offset`, at most to the log's end. Return whether it changed."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        if self.producers.ended_transactions:
            self.producers.committed(offset)
        return True

    def check_log_start(self, offset: Offset) -> None:
        """Check whether `advance_log_start` would accept `offset`.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE, `offset` is above the high watermark; the errors of
                `check_usable`.
        """
        self.check_usable()
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} can start at its high watermark {self.high_watermark} at the "
                f"latest, not at {offset}",
            )

    def advance_log_start(self, offset: Offset) -> bool:
        """Hide the records before `offset` from readers (DeleteRecords). Return whether the start changed.

        Raises:
            KafkaError: the errors of `check_log_start`.
        """
        self.check_log_start(offset)
        if offset <= self.log_start_offset:
            return False
        self.note_start(offset)
        return True

    def note_start(self, offset: Offset) -> None:
        """Move the log's start to a later offset, after earlier records were deleted."""
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        self._bounds_moved()

    def note_truncation(self, end: Offset) -> None:
        """Move the log's end back to `end`, after its files and producers were truncated."""
        logger.info("%s: truncated, it ends at %d", self.topic_partition, end)
        self.log_end_offset = end
        self.high_watermark = min(self.high_watermark, end)
        self.log_start_offset = min(self.log_start_offset, end)
        self.stable_point = min(self.stable_point, end)
        self.epochs.truncate_from_end(end)
        self.producers.committed(self.high_watermark)
        self._bounds_moved()

    def _bounds_moved(self) -> None:
        if self.listener is not None:
            self.listener.bounds_moved()

    def start_of_first_batch(self) -> Offset:
        """Return the base offset of the batch that contains the log's start. A copy of the log begins there.

        DeleteRecords can move the log's start into a batch, but batches are copied whole.

        Raises:
            OSError: the batch could not be read.
        """
        return self.files.start_of_batch(self.log_start_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, Offset]:
        """Return the largest leader epoch that is at most `epoch`, and its end offset (KIP-279).

        Both are -1 if they are unknown.
        """
        return self.epochs.end_offset(epoch, self.log_end_offset)

    # --- appends ---

    def append_as_leader(
        self,
        records: Buffer,
        leader_epoch: int,
        *,
        origin: Origin = Origin.CLIENT,
        valid: ValidBatch | None = None,
    ) -> AppendInfo:
        """Append the one batch in `records` to the log.

        If the log already has the batch, append nothing, and return the earlier offsets (`duplicate`).

        Args:
            records: the batch.
            leader_epoch: leader epoch to write into the batch.
            origin: source of the batch, which decides how completely it is checked.
            valid: result of an earlier `validate_batch` for this batch; None to validate it now.

        Raises:
            LongValidation: the validation of a client's batch would take too long for the event loop. Nothing
                has changed.
            KafkaError: the errors of `validate_batch` and `Producers.check`, and nothing has changed;
                KAFKA_STORAGE_ERROR, the disk failed, or the log or its directory is offline;
                UNKNOWN_TOPIC_OR_PARTITION, the log is closed.
        """
        self.check_usable()
        config = self.config
        header, data, log_append_time = valid or validate_batch(
            records, config, origin, self.env.clock.now_ms()
        )
        max_timestamp = header.max_timestamp
        if header.producer_id != NO_PRODUCER_ID:
            repeated = self.producers.check(header, origin)
            if repeated is not None:
                return AppendInfo(
                    repeated.base_offset,
                    repeated.last_offset,
                    -1 if log_append_time < 0 else repeated.timestamp,
                    self.log_start_offset,
                    repeated.timestamp,
                    True,
                )
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        size = len(data)
        try:
            segment = self._segment_for(size, last_offset, max_timestamp)
            segment.append(
                placed(data, base_offset, leader_epoch),
                size,
                base_offset,
                last_offset,
                max_timestamp,
                config.index_interval_bytes,
            )
        except OSError as error:
            raise self.append_failed(header, error) from error
        self.log_end_offset = last_offset + 1
        self._appended(header, data, base_offset, leader_epoch)
        return new_info(
            AppendInfo,
            (base_offset, last_offset, log_append_time, self.log_start_offset, max_timestamp, False),
        )

    def append_as_follower(self, records: Buffer, leader_epoch: int = NEWEST_EPOCH) -> AppendInfo | None:
        """Append complete batches from the leader, with its offsets and epochs.

        `leader_epoch` is the epoch in which the follower has fetched. These parts of `records` are ignored:

        - an incomplete batch at the end;
        - the first batch whose epoch is later than `leader_epoch`, and all batches after it (KAFKA-18723).

        Return None if no batch is left to append.

        Raises:
            KafkaError: CORRUPT_MESSAGE, a CRC is wrong, or offsets or epochs do not ascend from the log's
                end; KAFKA_STORAGE_ERROR, the disk failed, or the log or its directory is offline;
                UNKNOWN_TOPIC_OR_PARTITION, the log is closed.
        """
        self.check_usable()
        view = memoryview(records)
        found = find_copied_batches(
            view, self.topic_partition, self.log_end_offset, self.epochs.latest, leader_epoch
        )
        if not found:
            return None
        position, last = found[-1]
        size = position + last.length + LOG_OVERHEAD
        latest = last.max_timestamp
        if position:
            latest = max(header.max_timestamp for _, header in found)
        interval = self.config.index_interval_bytes
        try:
            segment = self._segment_for(size, last.last_offset, latest)
            segment.write((view if size == len(view) else view[:size],))
            for position, header in found:
                segment.index_batch(segment.size + position, header, interval)
            segment.size += size
        except OSError as error:
            raise self.failed(error) from error
        self.log_end_offset = end = last.next_offset
        for position, header in found:
            self._appended(header, view[position:], header.base_offset, header.leader_epoch)
        return new_info(
            AppendInfo, (found[0][1].base_offset, end - 1, -1, self.log_start_offset, latest, False)
        )

    def _appended(self, header: BatchHeader, data: Buffer, base_offset: Offset, leader_epoch: int) -> None:
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        if header.max_timestamp < 0:  # records that tell no time age by their file
            self.files.segments.active.modified_ms = self.env.clock.now_ms()
        producers = self.producers
        producers.end_offset = self.log_end_offset
        if header.producer_id != NO_PRODUCER_ID:
            aborted = note_producer(producers, header, data, base_offset)
            if aborted is not None:
                self.files.segments.active.aborted.append(aborted)

    def append_failed(self, header: BatchHeader, error: OSError) -> KafkaError:
        """Handle a failed write of a leader's append, and return the KafkaError for the caller to raise.

        Until the producer sends this batch again, the log rejects its later batches
        (`Producers.note_rejection`).
        """
        if header.producer_id != NO_PRODUCER_ID:
            self.producers.note_rejection(header)
        return self.failed(error)

    def _segment_for(self, size: int, last_offset: Offset, max_timestamp: int) -> LogSegment:
        """Return the segment for the next batches: the active segment, or a new one.

        If the active segment is full or too old for these batches, seal it and create a new active segment.

        Args:
            size: size of the batches in bytes.
            last_offset: last offset of the batches.
            max_timestamp: largest timestamp of the batches.

        Raises:
            OSError: the disk failed.
        """
        segment = self.files.segments.active
        if not segment.size:
            self.files.begin()
        elif must_roll(segment, self.config, self.env.clock, size, last_offset, max_timestamp):
            return self.roll()
        return segment

    def roll(self) -> LogSegment:
        """Seal the active segment, and begin a new one at the log's end. Return the active segment.

        If the active segment is empty, change nothing.

        Raises:
            OSError: the disk failed, and the active segment is still active. The caller must pass the error
                to `failed`, or call this method inside `guarded`.
        """
        return self.files.roll(self.log_end_offset, self.producers, self.config)

    # --- reads ---

    def read(
        self,
        offset: Offset,
        max_bytes: int,
        max_offset: Offset,
        min_one: bool = True,
        may_wait: bool = True,
    ) -> FetchedRecords:
        """Return batches from one segment: the batch that contains `offset`, and the batches after it.

        The result is empty if `offset` is not below `max_offset`, or if there is no batch between them.

        Args:
            offset: offset of the first record to read.
            max_bytes: largest size of the result. Its last batch may be incomplete.
            max_offset: end of the batches to read: the high watermark, the last stable offset or the log's
                end.
            min_one: whether the first batch is read even if it is larger than `max_bytes`.
            may_wait: whether the read may wait for the disk.

        Raises:
            ColdRead: the read would wait for the disk, and `may_wait` is False.
            KafkaError: OFFSET_OUT_OF_RANGE, `offset` is before the log's start or after its end;
                CORRUPT_MESSAGE, a batch is damaged; KAFKA_STORAGE_ERROR, the disk failed;
                UNKNOWN_TOPIC_OR_PARTITION, the log is closed.
        """
        if self.closed:
            raise self._gone()
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} holds offsets {self.log_start_offset} to {end - 1}, not {offset}",
            )
        if offset >= max_offset or (max_bytes <= 0 and not min_one):
            return NOTHING
        segments = self.files.segments
        try:
            if may_wait or segments.active.was_just_written(offset):
                return read_batches(segments, end, offset, max_bytes, max_offset, min_one)
            with self.env.files.without_waiting():
                return read_batches(segments, end, offset, max_bytes, max_offset, min_one)
        except OSError as error:
            raise self.failed(error) from error
        except KafkaError as error:
            self._report_damage(offset, error)
            raise

    def _report_damage(self, offset: Offset, error: KafkaError) -> None:
        """Log the damage once, because clients repeat their requests."""
        if not self.files.is_reported_damaged:
            self.files.is_reported_damaged = True
            logger.error(
                "%s: offset %d cannot be read: %s; stop the broker and run `barnabas log check`",
                self.topic_partition,
                offset,
                error.message,
            )

    def aborted_transactions(
        self, offset: Offset, size: int, may_wait: bool = True
    ) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap the `size` bytes read from `offset` on.

        They ascend by first offset, as clients require.

        Raises:
            ColdRead: the look-up would wait for the disk, and `may_wait` is False.
            KafkaError: KAFKA_STORAGE_ERROR, the disk failed.
        """
        segments = self.files.segments.from_offset(offset)
        if not any(len(segment.aborted) for segment in segments):
            return []
        return self._looked_up(
            may_wait, find_aborted_transactions, segments, self.log_end_offset, offset, size
        )

    def offset_for_timestamp(
        self, timestamp: int, start: Offset = 0, may_wait: bool = True
    ) -> OffsetAtTimestamp | None:
        """Return the offset for ListOffsets' `timestamp`; None if no record is that late.

        - A real timestamp: the first record at or after it.
        - MAX_TIMESTAMP (-3): the first record with the largest timestamp in the log.
        - EARLIEST (-2) and EARLIEST_LOCAL (-4): the log's start.
        - LATEST (-1): the log's end, not the high watermark or the last stable offset.
        - LATEST_TIERED (-5): None.

        Records before `start` are ignored.

        Raises:
            ColdRead: the look-up would wait for the disk, and `may_wait` is False.
            LongSearch: the search takes too long for one turn of the event loop.
            KafkaError: CORRUPT_MESSAGE, a batch cannot be decoded; KAFKA_STORAGE_ERROR, the disk failed.
        """
        start = max(start, self.log_start_offset)
        segments = self.files.segments
        if timestamp >= 0:
            return self._looked_up(may_wait, timestamps.first_at_or_after, segments, timestamp, start)
        if timestamp == timestamps.MAX_TIMESTAMP:
            return self._looked_up(may_wait, timestamps.with_max_timestamp, segments, start)
        if timestamp in (timestamps.EARLIEST, timestamps.EARLIEST_LOCAL):
            return OffsetAtTimestamp(-1, start, self.epochs.epoch_at(start))
        if timestamp == timestamps.LATEST:
            return OffsetAtTimestamp(-1, self.log_end_offset, self.epochs.latest)
        return None

    def _looked_up(self, may_wait: bool, look_up: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `look_up` with the other arguments, and return its result. `look_up` reads the log's files.

        Raises:
            ColdRead: `look_up` would wait for the disk, and `may_wait` is False.
            KafkaError: KAFKA_STORAGE_ERROR, the disk failed; or the error of `look_up`.
        """
        try:
            if may_wait:
                return look_up(*args, **kwargs)
            with self.env.files.without_waiting():
                return look_up(*args, **kwargs)
        except OSError as error:
            raise self.failed(error) from error

    # --- flushing and closing ---

    def prepare_flush(self) -> Flush | None:
        """Return a task that makes the log durable up to its end; None if everything is durable.

        Run the task in any thread. Then call `complete_flush` before you prepare the next task.

        If many sealed segments are not durable, the task makes only the first of them durable, and its
        `is_partial` is true. Later calls then return the tasks for the rest.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the log or its directory is offline; UNKNOWN_TOPIC_OR_PARTITION,
                the log is closed.
        """
        with self.guarded() as files:
            replacements = []
            if self.epochs.changed:
                path = f"{files.path}/{EPOCH_FILE}"
                replacements.append(Replacement(self.env.fs, path, self.epochs.encode()))
            flush = files.prepare_flush(self.log_end_offset, replacements)
        if flush is None:
            self.stable_point = self.last_stable_offset
        else:
            self.epochs.changed = False
            flush.stable_offset = self.last_stable_offset
        return flush

    def complete_flush(self, flush: Flush) -> None:
        """Raise the recovery point after a flush task has run.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the task failed. After a failed fsync, the log or its directory
                is offline: a second fsync would not report data that the kernel has dropped. After another
                error, the recovery point is unchanged, and the next flush does all work of this task again.
        """
        try:
            self.files.complete_flush(flush)
        except Exception as error:
            self.epochs.changed |= bool(flush.replacements)
            raise self.failed(error, syncing=flush.is_lost) from error
        if not flush.is_partial:
            self.stable_point = min(flush.stable_offset, self.log_end_offset)

    def flush(self) -> None:
        """Make the log durable up to its end. This call waits for the fsyncs.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the flush failed, or the log or its directory is offline.
        """
        self._run(self._flush_to_last_part())

    def _flush_to_last_part(self) -> Flush | None:
        """Prepare the log's flushes, run all of them except the last one, and return the last one.

        Return None if everything is durable. This call waits for the fsyncs of the flushes that it runs.
        """
        while (flush := self.prepare_flush()) is not None and flush.is_partial:
            self._run(flush)
        return flush

    def _run(self, flush: Flush | None) -> None:
        if flush is not None:
            flush.run()
            self.complete_flush(flush)

    def prepare_close(self) -> Flush | None:
        """Write a producer snapshot and the whole indexes, so that the next start need not read the batches.

        First complete or cancel a swap of the cleaner that an error has interrupted. The next start expects
        the segments to have their present sizes.

        Return the task that makes these files and the batches durable; None if everything is durable. If many
        sealed segments are not durable, this call makes the first ones durable itself.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the log directory is offline.
        """
        with self.guarded() as files:
            files.cancel_swap()
            if self.log_end_offset > max(files.snapshots, default=0):
                files.take_snapshot(self.log_end_offset, self.producers)
            files.seal_active()
        return self._flush_to_last_part()

    def close(self) -> None:
        """Call `prepare_close`, make the log durable, and close its files. This call waits for the fsyncs.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the log directory is offline; the files are closed.
        """
        try:
            self._run(self.prepare_close())
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the files without a flush, because the log was deleted or a test simulates a crash."""
        self.closed = True
        self.files.close()

    # --- other files ---

    def switch_files(self, copy: PartitionLog) -> LogFiles:
        """Switch to the files of `copy`, a copy of this log in another log directory. Return the old files.

        The copy must have all batches of this log. It must also have a durable snapshot of this log's
        producers, because some producers have no batches. If batches were added after this snapshot, this
        call writes another one at the log's end. A crash can tear the other one.

        The next flush writes the leader epochs, because some epochs have no records.

        Raises:
            OSError: nothing has changed.
        """
        copy.files.take_snapshot(self.log_end_offset, self.producers)
        before, self.files = self.files, copy.files
        self.files.supersede(before)
        self.env = self.files.env
        self.epochs.changed = True
        return before

    def move_to(self, env: LogEnvironment) -> None:
        """Close the files of a log that a thread has loaded. From now on the log uses `env`."""
        self.env = env
        self.files.move_to(env)

    # --- failures ---

    @property
    def is_offline(self) -> bool:
        """Whether the log accepts no writes until the next start."""
        return self.closed or self.failure is not None or self.env.failure is not None

    def check_usable(self) -> None:
        """Check whether the log accepts writes.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, the log is closed; KAFKA_STORAGE_ERROR, the log or its
                directory is offline.
        """
        if self.closed:
            raise self._gone()
        if self.env.failure is not None:
            raise self.env.offline_error()
        if self.failure is not None:
            raise self._offline()

    @contextmanager
    def guarded(self) -> Iterator[LogFiles]:
        """Return a context in which the caller may change the log's files.

        An OSError that the context's body raises becomes a KafkaError. `harm_of` decides whether this error
        also takes the log offline, or its log directory, or neither.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the log or its directory is offline, or the body has raised an
                OSError; UNKNOWN_TOPIC_OR_PARTITION, the log is closed.
        """
        self.check_usable()
        try:
            yield self.files
        except OSError as error:
            raise self.failed(error) from error

    def failed(self, error: Exception, *, syncing: bool = False) -> KafkaError:
        """Take the log or its directory offline if `error` harms it. Return the KafkaError to raise.

        Args:
            error: error of an operation on the log's files.
            syncing: whether an fsync of the log's own files has failed.
        """
        if self.closed:
            return self._gone()
        if isinstance(error, OSError) and harm_of(error, syncing=syncing) is not Harm.LOG:
            return self.env.handle_error(self.topic_partition, error)
        return self.fail(error)

    def fail(self, error: Exception) -> KafkaError:
        """Take the log offline until the next start; return the KafkaError for the caller to raise."""
        if self.failure is None:
            self.failure = error
            logger.error(
                "%s in %s is offline and takes no writes until the next start: %r",
                self.topic_partition,
                self.env.path,
                error,
            )
        return self._offline()

    def _offline(self) -> KafkaError:
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {self.topic_partition} is offline: {self.failure}"
        )

    def _gone(self) -> KafkaError:
        if self.env.failure is not None:
            return self.env.offline_error()
        if self.failure is not None:
            return self._offline()
        return KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the log of {self.topic_partition} is closed"
        )
