"""A partition's log: its segments, and everything that is kept beside them.

Owned by one thread, the event loop's. Reads and appends are synchronous; what may take long (fsync, deleting
files) is handed out as a task (`barnabas.storage.tasks`) that any thread may run.

Always: log start offset <= last stable offset <= high watermark <= log end offset.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from barnabas.config import TopicConfig
from barnabas.errors import ErrorCode, KafkaError
from barnabas.records.batch import LOG_OVERHEAD, BatchHeader, batches, check_crc, placed
from barnabas.storage import timestamps
from barnabas.storage.environment import LogEnvironment
from barnabas.storage.epochs import FILE_NAME as EPOCH_FILE
from barnabas.storage.epochs import LeaderEpochs
from barnabas.storage.index import TimeIndex
from barnabas.storage.log_files import LogFiles
from barnabas.storage.producer_recovery import load_producers, note_producer
from barnabas.storage.producers import Origin, Producer, Producers
from barnabas.storage.retention import expired_segments
from barnabas.storage.segment import MAX_RELATIVE_OFFSET, LogSegment
from barnabas.storage.tasks import Flush, Removal, Replacement
from barnabas.storage.timestamps import OffsetAtTimestamp
from barnabas.storage.validation import validate_batch
from barnabas.types import NO_PRODUCER_ID, Buffer, Offset, TopicId, TopicPartition

logger = logging.getLogger(__name__)

#: the larger of the two indexes' entries: its file is full first
TIME_ENTRY_SIZE = TimeIndex.ENTRY.size


class AppendInfo(NamedTuple):
    """What became of an append; `log_append_time_ms` is -1 where records keep the producer's time."""

    base_offset: Offset
    last_offset: Offset
    log_append_time_ms: int
    log_start_offset: Offset
    max_timestamp: int
    duplicate: bool


class FetchedRecords(NamedTuple):
    """Batches as they lie in the log, the last one perhaps cut off."""

    chunks: list[Buffer]
    size: int


NOTHING = FetchedRecords([], 0)


class PartitionLog:
    """One partition's log. Opened by `LogDirectory`."""

    __slots__ = (
        "_env",
        "closed",
        "config",
        "epochs",
        "files",
        "high_watermark",
        "last_flush_ms",
        "log_end_offset",
        "log_start_offset",
        "producers",
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
        self.log_start_offset = log_start_offset
        #: raised by the replication room alone
        self.high_watermark = log_start_offset
        self.log_end_offset = log_end_offset
        self.last_flush_ms = files.env.clock.now_ms()
        self.epochs = epochs
        self.producers = producers
        self.closed = False
        self._env = files.env

    def __repr__(self) -> str:
        return f"<PartitionLog {self.topic_partition} {self.log_start_offset}..{self.log_end_offset}>"

    # --- what it holds ---

    @property
    def last_stable_offset(self) -> Offset:
        """Where a reader of committed records stops: at the first open transaction or the high watermark."""
        unstable = self.producers.first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    @property
    def latest_epoch(self) -> int:
        """The last leader epoch that wrote, -1 when there is none."""
        return self.epochs.latest

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.files.segments)

    @property
    def recovery_point(self) -> Offset:
        """Everything before this offset is known to be on disk."""
        return self.files.recovery_point

    @property
    def unflushed_records(self) -> int:
        """How many offsets lie beyond the recovery point: `flush.messages` bounds it."""
        return self.log_end_offset - self.files.recovery_point

    @property
    def has_rolled(self) -> bool:
        """Whether a segment was sealed since the last flush: the time for one that bounds a recovery."""
        return self.files.has_rolled

    def advance_high_watermark(self, offset: Offset) -> bool:
        """Moves the high watermark forward to `offset`, at most to the log's end; whether it moved."""
        offset = min(offset, self.log_end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    # --- append ---

    def append_as_leader(
        self, records: Buffer, leader_epoch: int, *, origin: Origin = Origin.CLIENT
    ) -> AppendInfo:
        """Appends the one batch in `records` at the log's end.

        Raises:
            KafkaError: as `validate_batch` and `Producers.check` say, and nothing has changed;
                KAFKA_STORAGE_ERROR, the log directory is offline.
        """
        self._check_usable()
        config = self.config
        header, data, log_append_time = validate_batch(records, config, origin, self._env.clock.now_ms())
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
        size = header.length + LOG_OVERHEAD
        try:
            segment = self._segment_for(size, last_offset, header.max_timestamp)
            segment.append(
                placed(header, data, base_offset, leader_epoch),
                size,
                base_offset,
                last_offset,
                header.max_timestamp,
                config.index_interval_bytes,
            )
        except OSError as error:
            raise self._failed(error) from error
        self.log_end_offset = last_offset + 1
        self._appended(header, data, base_offset, leader_epoch)
        return AppendInfo(
            base_offset, last_offset, log_append_time, self.log_start_offset, header.max_timestamp, False
        )

    def append_as_follower(self, records: Buffer) -> AppendInfo | None:
        """Appends batches as the leader has them, offsets and epochs included; None when there is none.

        A batch cut off at the end is left out.

        Raises:
            KafkaError: CORRUPT_MESSAGE, a CRC is wrong or offsets do not ascend from the log's end;
                KAFKA_STORAGE_ERROR, the log directory is offline.
        """
        self._check_usable()
        found = list(batches(records))
        if not found:
            return None
        self._check_follows(found, records)
        size = found[-1][0] + found[-1][1].size
        first, last = found[0][1], found[-1][1]
        latest = max(header.max_timestamp for _, header in found)
        view = memoryview(records)
        interval = self.config.index_interval_bytes
        try:
            segment = self._segment_for(size, last.last_offset, latest)
            segment.write([view[:size]])
            at = segment.size
            segment.size += size
            for position, header in found:
                segment.indexed(
                    at + position,
                    header.size,
                    header.base_offset,
                    header.last_offset,
                    header.max_timestamp,
                    interval,
                )
        except OSError as error:
            raise self._failed(error) from error
        self.log_end_offset = last.next_offset
        for position, header in found:
            self._appended(header, view[position:], header.base_offset, header.leader_epoch)
        return AppendInfo(
            first.base_offset, last.last_offset, -1, self.log_start_offset, latest, duplicate=False
        )

    def assign_epoch(self, epoch: int) -> None:
        """A leader begins to write with `epoch` at the log's end."""
        self.epochs.assign(epoch, self.log_end_offset)

    def _check_follows(self, found: list[tuple[int, BatchHeader]], records: Buffer) -> None:
        expected = self.log_end_offset
        for position, header in found:
            check_crc(header, records, position)
            if header.base_offset < expected:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"{self.topic_partition}: a batch at {header.base_offset} cannot follow {expected - 1}",
                )
            expected = header.next_offset

    def _appended(self, header: BatchHeader, data: Buffer, base_offset: Offset, leader_epoch: int) -> None:
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        producers = self.producers
        producers.end_offset = self.log_end_offset
        if header.producer_id != NO_PRODUCER_ID:
            note_producer(producers, header, data, base_offset)

    def _segment_for(self, size: int, last_offset: Offset, max_timestamp: int) -> LogSegment:
        """The active segment, a new one if the batch does not fit into the old one."""
        segment = self.files.segments.active
        config = self.config
        if segment.size and (
            segment.size + size > config.segment_bytes
            or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
            or self._is_aged(segment, max_timestamp)
            or segment.times.size + TIME_ENTRY_SIZE > config.segment_index_bytes
        ):
            return self.roll()
        return segment

    def _is_aged(self, segment: LogSegment, max_timestamp: int) -> bool:
        first = segment.first_timestamp
        if first >= 0 and max_timestamp >= 0:
            age = max_timestamp - first
        else:
            age = self._env.clock.now_ms() - segment.created_ms
        return age > self.config.segment_ms - segment.roll_jitter_ms

    def roll(self) -> LogSegment:
        """Seals the active segment and begins a new one at the log's end.

        Raises:
            OSError: the caller's business, as it may be in the middle of something.
        """
        return self.files.roll(self.log_end_offset, self.producers, self.config)

    # --- read ---

    def read(
        self, offset: Offset, max_bytes: int, max_offset: Offset, min_one: bool = True
    ) -> FetchedRecords:
        """The batches from the one that holds `offset`, all below `max_offset`, from one segment.

        At most `max_bytes`, but with `min_one` at least the first batch, however large. `max_offset` is the
        high watermark, the last stable offset or the log's end.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE, `offset` lies before the log's start or beyond its end;
                KAFKA_STORAGE_ERROR, the disk failed.
        """
        if self.closed:
            raise self._gone()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} holds offsets {self.log_start_offset} to "
                f"{self.log_end_offset - 1}, not {offset}",
            )
        if offset >= max_offset or (max_bytes <= 0 and not min_one):
            return NOTHING
        try:
            return self._read(offset, max_bytes, max_offset, min_one)
        except OSError as error:
            raise self._failed(error) from error

    def _read(self, offset: Offset, max_bytes: int, max_offset: Offset, min_one: bool) -> FetchedRecords:
        segments = self.files.segments
        segment = segments.active
        place = len(segments) - 1
        if offset < segment.base_offset:
            place = segments.place_of(offset)
            segment = segments[place]
        while True:
            position = segment.position_of(offset)
            end_offset = (
                self.log_end_offset if segment is segments.active else segments[place + 1].base_offset
            )
            end = segment.size if max_offset >= end_offset else segment.position_of(max_offset)
            if position < end:
                data = segment.read(position, max_bytes, end, min_one)
                return FetchedRecords([data], len(data)) if len(data) else NOTHING
            if max_offset <= end_offset or segment is segments.active:
                return NOTHING
            place += 1  # compaction left nothing from `offset` to this segment's end
            segment = segments[place]

    def offset_for_timestamp(self, timestamp: int) -> OffsetAtTimestamp | None:
        """Where ListOffsets' `timestamp` points, None when no record is that late.

        A real timestamp gives the first record at or after it; MAX_TIMESTAMP (-3) the first record that
        bears the largest; EARLIEST (-2) and EARLIEST_LOCAL (-4) the log's start; LATEST (-1) its end
        (the caller knows the high watermark and the last stable offset); LATEST_TIERED (-5) none.

        Raises:
            KafkaError: CORRUPT_MESSAGE, a batch cannot be decoded; KAFKA_STORAGE_ERROR, the disk failed.
        """
        start = self.log_start_offset
        try:
            if timestamp >= 0:
                return timestamps.first_at_or_after(self.files.segments, timestamp, start)
            if timestamp == timestamps.MAX_TIMESTAMP:
                return timestamps.with_max_timestamp(self.files.segments, start)
        except OSError as error:
            raise self._failed(error) from error
        if timestamp in (timestamps.EARLIEST, timestamps.EARLIEST_LOCAL):
            return OffsetAtTimestamp(-1, start, self.epochs.epoch_at(start))
        if timestamp == timestamps.LATEST:
            return OffsetAtTimestamp(-1, self.log_end_offset, self.epochs.latest)
        return None

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, Offset]:
        """The largest leader epoch not above `epoch` and where it ends; (-1, -1) when unknown (KIP-279)."""
        return self.epochs.end_offset(epoch, self.log_end_offset)

    def active_producers(self) -> list[Producer]:
        """Every producer the log remembers, as DescribeProducers shows them (KIP-664)."""
        return list(self.producers)

    def remove_expired_producers(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets producers silent for longer than `producer.id.expiration.ms`."""
        self.producers.expire(now_ms, expiration_ms)

    # --- drop ---

    def advance_log_start(self, offset: Offset) -> bool:
        """Records before `offset` are gone for readers (DeleteRecords); whether anything changed.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE, `offset` lies beyond the high watermark.
        """
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} can start at its high watermark {self.high_watermark} at the "
                f"latest, not at {offset}",
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        return True

    def delete_old_segments(self, now_ms: int) -> Removal | None:
        """Takes out the segments that retention or the log's start has left behind.

        Their files are renamed to ``.deleted``; run the result when `file.delete.delay.ms` has passed.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the log directory is offline.
        """
        self._check_usable()
        count = expired_segments(
            self.files.segments,
            self.config,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            log_end_offset=self.log_end_offset,
            now_ms=now_ms,
        )
        if not count:
            return None
        try:
            if count == len(self.files.segments):
                self.roll()
            oldest = self.files.segments[0].base_offset
            removal = self.files.take_out_first(count)
        except OSError as error:
            raise self._failed(error) from error
        start = self.files.segments[0].base_offset
        logger.info("%s: dropping %d segments, offsets %d to %d", self, count, oldest, start - 1)
        if start > self.log_start_offset:
            self.log_start_offset = start
            self.epochs.truncate_from_start(start)
        return removal

    def truncate_to(self, offset: Offset) -> bool:
        """Cuts the log off before `offset`, as a follower does to agree with its leader; whether it did.

        A batch that holds `offset` goes as a whole.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the log directory is offline.
        """
        if offset >= self.log_end_offset:
            return False
        if offset < self.files.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        try:
            self._announce_truncation(offset)
            self._now_ends_at(self.files.truncate(offset))
        except OSError as error:
            raise self._half_truncated(error) from error
        return True

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Drops everything; the log is empty and goes on at `offset`.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the log directory is offline.
        """
        try:
            self._announce_truncation(min(offset, self.log_start_offset))
            self.files.start_over(offset, self.config)
            self.log_start_offset = self.high_watermark = offset
            self._now_ends_at(offset)
        except OSError as error:
            raise self._half_truncated(error) from error

    def _announce_truncation(self, offset: Offset) -> None:
        self._check_usable()
        if self._env.before_truncation is not None and offset < self.recovery_point:
            self._env.before_truncation(self.topic_partition, offset)

    def _now_ends_at(self, end: Offset) -> None:
        logger.info("%s: truncated, it ends at %d", self.topic_partition, end)
        self.log_end_offset = end
        self.high_watermark = min(self.high_watermark, end)
        self.log_start_offset = min(self.log_start_offset, end)
        self.epochs.truncate_from_end(end)
        self.producers = load_producers(self.files, end)

    # --- keep ---

    def prepare_flush(self) -> Flush | None:
        """What makes the log durable up to its end: run it in any thread, then `complete_flush` it here.

        None when everything is durable already. One at a time: a second one before the first is completed
        would promise what the first has yet to do.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the log directory is offline.
        """
        self._check_usable()
        replacements = []
        if self.epochs.changed:
            path = f"{self.files.path}/{EPOCH_FILE}"
            replacements.append(Replacement(self._env.fs, path, self.epochs.encode()))
            self.epochs.changed = False
        try:
            return self.files.prepare_flush(self.log_end_offset, replacements)
        except OSError as error:
            raise self._failed(error) from error

    def complete_flush(self, flush: Flush) -> None:
        """Moves the recovery point on after a flush that has run.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, it failed: the log directory is offline, for what an fsync
                could not write may be lost though a second fsync says nothing.
        """
        self.last_flush_ms = self._env.clock.now_ms()
        try:
            self.files.complete_flush(flush)
        except OSError as error:
            raise self._failed(error) from error

    def flush(self) -> None:
        """Makes the log durable up to its end, here and now.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, it failed; the log directory is offline.
        """
        flush = self.prepare_flush()
        if flush is not None:
            flush.run()
            self.complete_flush(flush)

    def prepare_close(self) -> Flush | None:
        """Writes down all that a quick start needs, and what then makes it durable, as `prepare_flush`.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the log directory is offline.
        """
        self._check_usable()
        try:
            if self.log_end_offset > max(self.files.snapshots, default=0):
                self.files.take_snapshot(self.log_end_offset, self.producers)
            self.files.seal_active()
        except OSError as error:
            raise self._failed(error) from error
        return self.prepare_flush()

    def close(self) -> None:
        """Flushes everything that a quick start needs, and closes the files.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the log directory is offline; the files are closed.
        """
        try:
            flush = self.prepare_close()
            if flush is not None:
                flush.run()
                self.complete_flush(flush)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Closes the files as they are: the log was deleted, or a crash is played."""
        self.closed = True
        self.files.close()

    def move_to(self, env: LogEnvironment) -> None:
        """Gives a log that was loaded in a thread over to the owner of `env`; its files are closed."""
        self._env = env
        self.files.move_to(env)

    def _check_usable(self) -> None:
        if self.closed:
            raise self._gone()
        if self._env.failure is not None:
            raise self._env.offline()

    def _failed(self, error: OSError) -> KafkaError:
        return self._gone() if self.closed else self._env.fail(error)

    def _half_truncated(self, error: OSError) -> KafkaError:
        failed = self._failed(error)
        self.abandon()  # what is on disk only the next start can tell
        return failed

    def _gone(self) -> KafkaError:
        if self._env.failure is not None:
            return self._env.offline()
        return KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the log of {self.topic_partition} is closed"
        )
