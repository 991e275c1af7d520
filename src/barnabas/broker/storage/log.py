"""A partition's log: appends and reads.

Owned by one thread, the event loop's, and synchronous: what may take long is handed out as a task
(`barnabas.broker.storage.upkeep`).
"""

from __future__ import annotations

import logging
from itertools import chain
from typing import NamedTuple

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import NO_PRODUCER_ID, Buffer, Chunk, Offset
from barnabas.broker.storage import timestamps
from barnabas.broker.storage.plain import MOST_PLAIN_RECORDS, TIME_ENTRY_SIZE, PlainLimits
from barnabas.broker.storage.producer_recovery import note_producer
from barnabas.broker.storage.producers import Origin, Producer
from barnabas.broker.storage.segment import MAX_RELATIVE_OFFSET, LogSegment
from barnabas.broker.storage.timestamps import OffsetAtTimestamp
from barnabas.broker.storage.transaction_index import AbortedTransaction
from barnabas.broker.storage.upkeep import LogUpkeep
from barnabas.broker.storage.validation import ValidBatch, validate_batch
from barnabas.kafka.records.batch import (
    COMPRESSION_MASK,
    CRC_COVERS_FROM,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    SEQUENCE_LIMIT,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    batches,
    check_crc,
    parse_header,
    placed,
    with_timestamp_type,
)
from barnabas.kafka.records.compression import Compression
from barnabas.kafka.records.crc import crc32c

logger = logging.getLogger(__name__)

#: no leader epoch is later
NEWEST_EPOCH = 2**31 - 1


class AppendInfo(NamedTuple):
    """The result of an append; `log_append_time_ms` is -1 if records keep the producer's time."""

    base_offset: Offset
    last_offset: Offset
    log_append_time_ms: int
    log_start_offset: Offset
    max_timestamp: int
    duplicate: bool


_LAST_CODEC = int(max(Compression))


#: makes an `AppendInfo` of its fields, at half the cost of calling it: it is made for every append
_info = tuple.__new__


class FetchedRecords(NamedTuple):
    """Batches with the log's own bytes; the last one may be incomplete."""

    chunks: list[Chunk]
    size: int


NOTHING = FetchedRecords([], 0)


class PartitionLog(LogUpkeep):
    """One partition's log. Opened by `LogDirectory`."""

    __slots__ = ()

    @property
    def latest_epoch(self) -> int:
        """The last leader epoch that wrote, -1 when there is none."""
        return self.epochs.latest

    @property
    def last_stable_offset(self) -> Offset:
        """The end for readers of committed records: the first open transaction or the high watermark."""
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return max(min(unstable, self.high_watermark), self.log_start_offset)

    def append_as_leader(
        self,
        records: Buffer,
        leader_epoch: int,
        *,
        origin: Origin = Origin.CLIENT,
        valid: ValidBatch | None = None,
    ) -> AppendInfo:
        """Append the one batch in `records` at the log's end.

        `valid` is the result of an earlier `validate_batch`, if there was one.

        Raises:
            LongValidation: the validation of a client's batch would take too long for the event loop. Nothing
            has
                changed.
            KafkaError: the errors of `validate_batch` and `Producers.check`, and nothing has changed;
                KAFKA_STORAGE_ERROR, the log directory is offline.
        """
        self._check_usable()
        config = self.config
        header, data, log_append_time = valid or validate_batch(
            records, config, origin, self._env.clock.now_ms()
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
            raise self._not_written(header, error) from error
        self.log_end_offset = last_offset + 1
        self._appended(header, data, base_offset, leader_epoch)
        return _info(
            AppendInfo,
            (base_offset, last_offset, log_append_time, self.log_start_offset, max_timestamp, False),
        )

    def append_plain(
        self, records: Buffer, leader_epoch: int, limits: PlainLimits, flags: int, now_ms: int
    ) -> AppendInfo | None:
        """Append a batch if it is plain; None if it is not, and nothing has changed.

        The outcome for the log is that of `append_as_leader`, which decides about all other batches.

        Args:
            records: the batch.
            leader_epoch: the leader epoch to append it in.
            limits: the limits by the topic's settings.
            flags: the bits of the attributes that the request may set.
            now_ms: the time.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the disk failed, and nothing has changed.
        """
        segment = self.files.segments.active
        size = len(records)
        position = segment.size
        if (
            self.failure is not None
            or self._env.failure is not None
            or self.closed
            or not HEADER_SIZE <= size <= limits.most_bytes
            or not 0 < position <= limits.segment_bytes - size
            or segment.times.size > limits.index_bytes
            or self.epochs.latest != leader_epoch
        ):
            return None
        (offset, length, _, magic, crc, attributes, last_delta, earliest, latest,
         producer_id, producer_epoch, sequence, count) = HEADER.unpack_from(records)  # fmt: skip
        base_offset = self.log_end_offset
        last_offset = base_offset + last_delta
        if (
            offset
            or length != size - LOG_OVERHEAD
            or magic != MAGIC
            or attributes & ~flags
            or attributes & COMPRESSION_MASK > _LAST_CODEC
            or count != last_delta + 1
            or not 0 < count <= MOST_PLAIN_RECORDS
            or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
            or latest < 0
            or latest > now_ms + limits.after_ms
            or earliest < now_ms - limits.before_ms
            or crc32c(memoryview(records)[CRC_COVERS_FROM:]) != crc
        ):
            return None
        log_append_time = -1
        if limits.is_log_append_time:
            latest = log_append_time = now_ms
        first = segment.first_timestamp
        if first < 0 or latest - first > limits.segment_ms - segment.roll_jitter_ms:
            return None
        producer = None
        producers = self.producers
        if producer_id != NO_PRODUCER_ID:
            is_transactional = attributes & TRANSACTIONAL_FLAG != 0
            producer = producers.next_in_line(producer_id, producer_epoch, sequence, is_transactional)
            if producer is None:
                return None
        elif attributes & TRANSACTIONAL_FLAG:
            return None
        if limits.is_log_append_time:
            records = with_timestamp_type(parse_header(records), records, now_ms)
        chunks = placed(records, base_offset, leader_epoch)
        try:
            segment.append(chunks, size, base_offset, last_offset, latest, limits.index_interval)
        except OSError as error:
            raise self._not_written(parse_header(records), error) from error
        self.log_end_offset = producers.end_offset = last_offset + 1
        if producer is not None:
            producer.wrote((sequence + last_delta) % SEQUENCE_LIMIT, last_offset, last_delta, latest)
        return _info(
            AppendInfo, (base_offset, last_offset, log_append_time, self.log_start_offset, latest, False)
        )

    def _not_written(self, header: BatchHeader, error: OSError) -> KafkaError:
        if header.producer_id != NO_PRODUCER_ID:
            self.producers.refuse(header)
        return self._failed(error)

    def append_as_follower(self, records: Buffer, leader_epoch: int = NEWEST_EPOCH) -> AppendInfo | None:
        """Append batches as the leader has them, offsets and epochs included; return None if there are none.

        An incomplete batch at the end is left out. So is the first batch of an epoch later than
        `leader_epoch`, with all after it: `leader_epoch` is the epoch of the fetch (KAFKA-18723).

        Raises:
            KafkaError: CORRUPT_MESSAGE, a CRC is wrong, or offsets or epochs do not ascend from the log's
                end; KAFKA_STORAGE_ERROR, the log directory is offline.
        """
        self._check_usable()
        view = memoryview(records)
        found = self._following(view, leader_epoch)
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
            raise self._failed(error) from error
        self.log_end_offset = end = last.next_offset
        for position, header in found:
            self._appended(header, view[position:], header.base_offset, header.leader_epoch)
        return _info(AppendInfo, (found[0][1].base_offset, end - 1, -1, self.log_start_offset, latest, False))

    def _following(self, records: memoryview, leader_epoch: int) -> list[tuple[int, BatchHeader]]:
        """Return the batches of `records` up to a leader epoch, with their positions; all can be appended."""
        found = []
        expected = self.log_end_offset
        epoch = self.epochs.latest
        for position, header in batches(records):
            base_offset, length, batch_epoch, magic, crc, _, last_delta, _, _, _, _, _, _ = header
            if batch_epoch > leader_epoch:
                break
            covered = records[position + CRC_COVERS_FROM : position + length + LOG_OVERHEAD]
            if magic != MAGIC or crc32c(covered) != crc:
                check_crc(header, records, position)
            # the CRC does not cover where a batch says that it lies, nor its epoch and its magic byte
            if base_offset < expected or last_delta < 0:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"{self.topic_partition}: a batch at {base_offset} cannot follow {expected - 1}",
                )
            if 0 <= batch_epoch < epoch:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"{self.topic_partition}: a batch of epoch {batch_epoch} cannot follow one of {epoch}",
                )
            found.append((position, header))
            expected = base_offset + last_delta + 1
            epoch = max(epoch, batch_epoch)
        return found

    def _appended(self, header: BatchHeader, data: Buffer, base_offset: Offset, leader_epoch: int) -> None:
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        if header.max_timestamp < 0:  # records that tell no time age by their file
            self.files.segments.active.modified_ms = self._env.clock.now_ms()
        producers = self.producers
        producers.end_offset = self.log_end_offset
        if header.producer_id != NO_PRODUCER_ID:
            aborted = note_producer(producers, header, data, base_offset)
            if aborted is not None:
                self.files.segments.active.aborted.append(aborted)

    def _segment_for(self, size: int, last_offset: Offset, max_timestamp: int) -> LogSegment:
        """Return the active segment, a new one if the batch does not fit into the old one."""
        segment = self.files.segments.active
        if not segment.size:
            self.files.begin()
            return segment
        config = self.config
        if (
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
        config = self.config
        limit = config.segment_ms
        if config.is_compacted:
            limit = min(limit, config.max_compaction_lag_ms)
        return age > limit - segment.roll_jitter_ms

    def read(
        self,
        offset: Offset,
        max_bytes: int,
        max_offset: Offset,
        min_one: bool = True,
        may_wait: bool = True,
    ) -> FetchedRecords:
        """Return the batches from the one that holds `offset`, all below `max_offset`, from one segment.

        At most `max_bytes`, but with `min_one` at least the first batch, however large. `max_offset` is the
        high watermark, the last stable offset or the log's end.

        Raises:
            ColdRead: it would wait for the disk, and it is not the case that it `may_wait`.
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
            if may_wait or self.files.segments.active.was_just_written(offset):
                return self._read(offset, max_bytes, max_offset, min_one)
            with self._env.files.without_waiting():
                return self._read(offset, max_bytes, max_offset, min_one)
        except OSError as error:
            raise self._failed(error) from error
        except KafkaError as error:
            self._report_damage(offset, error)
            raise

    def _report_damage(self, offset: Offset, error: KafkaError) -> None:
        """Report the damage once: clients repeat their requests."""
        if not self.files.is_reported_damaged:
            self.files.is_reported_damaged = True
            logger.error(
                "%s: offset %d cannot be read: %s; stop the broker and run `barnabas log check`",
                self.topic_partition,
                offset,
                error.message,
            )

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

    def aborted_transactions(
        self, offset: Offset, size: int, may_wait: bool = True
    ) -> list[AbortedTransaction]:
        """Return the aborted transactions that the `size` bytes read from `offset` may hold records of.

        Ascending by first offset, as clients need them to skip those records.

        Raises:
            ColdRead: as `read`.
            KafkaError: KAFKA_STORAGE_ERROR, the disk failed.
        """
        segments = self.files.segments.from_offset(offset)
        if not any(len(segment.aborted) for segment in segments):
            return []
        try:
            if may_wait:
                return self._aborted(segments, offset, size)
            with self._env.files.without_waiting():
                return self._aborted(segments, offset, size)
        except OSError as error:
            raise self._failed(error) from error

    def _aborted(self, segments: list[LogSegment], offset: Offset, size: int) -> list[AbortedTransaction]:
        while (position := segments[0].position_of(offset)) == segments[0].size and len(segments) > 1:
            del segments[0]  # compaction left nothing from `offset` on, so it was read from the next
        end = segments[0].offset_bound(position + size)
        if end is None:
            end = segments[1].base_offset if len(segments) > 1 else self.log_end_offset
        found = []
        for aborted in chain.from_iterable(segment.aborted.from_offset(offset) for segment in segments):
            if aborted.first_offset < end:
                found.append(aborted)
            if aborted.last_stable_offset >= end:
                break  # what is aborted after it has begun after it, too
        return sorted(found, key=lambda aborted: aborted.first_offset)

    def offset_for_timestamp(
        self, timestamp: int, start: Offset = 0, may_wait: bool = True
    ) -> OffsetAtTimestamp | None:
        """Return the offset of ListOffsets' `timestamp`, None if no record is that late.

        - A real timestamp: the first record at or after it.
        - MAX_TIMESTAMP (-3): the first record that has the largest one.
        - EARLIEST (-2) and EARLIEST_LOCAL (-4): the log's start.
        - LATEST (-1): its end. The caller knows the high watermark and the last stable offset.
        - LATEST_TIERED (-5): none.

        Records before `start` do not count.

        Raises:
            ColdRead: under the conditions of `read`.
            LongSearch: the search takes too long for one turn of the event loop.
            KafkaError: CORRUPT_MESSAGE, a batch cannot be decoded; KAFKA_STORAGE_ERROR, the disk failed.
        """
        start = max(start, self.log_start_offset)
        if timestamp >= 0 or timestamp == timestamps.MAX_TIMESTAMP:
            try:
                if may_wait:
                    return self._at_timestamp(timestamp, start)
                with self._env.files.without_waiting():
                    return self._at_timestamp(timestamp, start)
            except OSError as error:
                raise self._failed(error) from error
        if timestamp in (timestamps.EARLIEST, timestamps.EARLIEST_LOCAL):
            return OffsetAtTimestamp(-1, start, self.epochs.epoch_at(start))
        if timestamp == timestamps.LATEST:
            return OffsetAtTimestamp(-1, self.log_end_offset, self.epochs.latest)
        return None

    def _at_timestamp(self, timestamp: int, start: Offset) -> OffsetAtTimestamp | None:
        if timestamp >= 0:
            return timestamps.first_at_or_after(self.files.segments, timestamp, start)
        return timestamps.with_max_timestamp(self.files.segments, start)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, Offset]:
        """The largest leader epoch not above `epoch` and where it ends; (-1, -1) when unknown (KIP-279)."""
        return self.epochs.end_offset(epoch, self.log_end_offset)

    def active_producers(self) -> list[Producer]:
        """Return every producer the log remembers, as DescribeProducers shows them (KIP-664)."""
        return list(self.producers)

    def remove_expired_producers(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers silent for longer than `producer.id.expiration.ms`."""
        self.producers.expire(now_ms, expiration_ms)
