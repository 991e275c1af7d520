"""Finds offsets by time, for ListOffsets (KIP-79, KIP-734)."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.base.errors import KafkaError
from barnabas.broker.storage.segment import LogSegment
from barnabas.broker.storage.segments import Segments
from barnabas.broker.storage.validation import AT_ONCE_BYTES, AT_ONCE_RECORDS, MAX_BYTES, MAX_RECORDS
from barnabas.kafka.records.batch import BatchHeader
from barnabas.kafka.records.builder import batch_payload
from barnabas.kafka.records.record import decode_records

#: most batches that are decoded at once, on the event loop, ...
MAX_AT_ONCE = 8
#: ... and most headers that are read there, in about a millisecond
MAX_HEADERS = 500

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5


class OffsetAtTimestamp(NamedTuple):
    """A record's timestamp, offset and leader epoch. A missing timestamp or epoch is -1."""

    timestamp: int
    offset: int
    leader_epoch: int


def first_at_or_after(segments: Segments, timestamp: int, log_start_offset: int) -> OffsetAtTimestamp | None:
    """Return the first record at or after `log_start_offset` whose timestamp is at least `timestamp`.

    Return None if there is no such record.

    Raises:
        LongSearch: the search takes too long for one turn of the event loop.
        ColdRead: the search would wait for the disk, inside `OpenFiles.without_waiting`.
        OSError: the disk failed.
        KafkaError: CORRUPT_MESSAGE, a batch cannot be decoded.
    """
    for segment in segments:
        if segment.latest.timestamp >= timestamp:
            start = max(log_start_offset, segment.start_for_time(timestamp))
            found = _first_in(segment, start, timestamp, log_start_offset)
            if found:
                return found
    return None


def with_max_timestamp(segments: Segments, log_start_offset: int) -> OffsetAtTimestamp | None:
    """Return the first record with the largest timestamp of the log; None if no record has a timestamp.

    Records before `log_start_offset` are ignored.

    Raises:
        LongSearch, ColdRead, OSError, KafkaError: as `first_at_or_after`.
    """
    latest = max((segment.latest for segment in segments), key=lambda latest: latest.timestamp)
    if latest.timestamp < 0:
        return None
    return first_at_or_after(segments, latest.timestamp, log_start_offset)


def _first_in(
    segment: LogSegment, start: int, timestamp: int, log_start_offset: int
) -> OffsetAtTimestamp | None:
    searched = 0
    seen = 0
    for position, header in segment.headers(segment.position_of(start)):
        seen += header.last_offset >= start
        if seen > MAX_HEADERS:  # the first record of the segment was its latest until now, say
            raise LongSearch(header.base_offset, timestamp)
        if header.latest_record_timestamp >= timestamp and header.last_offset >= log_start_offset:
            if header.is_log_append_time and header.record_count == header.last_offset_delta + 1:
                offset = max(header.base_offset, log_start_offset)
                return OffsetAtTimestamp(header.max_timestamp, offset, header.leader_epoch)
            batch = LongBatch(header, segment.log.read_at(header.size, position))
            searched += 1
            if searched > MAX_AT_ONCE:  # many headers have a later time than their records
                raise batch
            found = batch.find_at_once(timestamp, log_start_offset)
            if found:
                return found
    return None


class LongSearch(Exception):
    """Raised by a search that takes too long for one turn of the event loop.

    The caller must continue the search: call `find` in a thread. If `find` returns a record, this is the
    result of the search. If `find` returns None, repeat the search for the same timestamp from the offset
    `next_offset` on, in a later turn of the event loop.
    """

    def __init__(self, next_offset: int, max_timestamp: int) -> None:
        super().__init__(f"nothing found before offset {next_offset}")
        self.next_offset = next_offset
        #: the value of MAX_TIMESTAMP
        self.max_timestamp = max_timestamp

    def find(self, timestamp: int, start: int) -> OffsetAtTimestamp | None:
        """Return None: the search has found no record before `next_offset`.

        `LongBatch` overrides this method, to search its batch.

        Args:
            timestamp: the timestamp for which the search was made.
            start: the first offset that the search may return.
        """
        return None


class LongBatch(LongSearch):
    """Raised by a search that has reached a batch which may take too long to decode on the event loop."""

    def __init__(self, header: BatchHeader, batch: bytes) -> None:
        super().__init__(header.next_offset, header.max_timestamp)
        self._header = header
        self._batch = batch

    def find_at_once(self, timestamp: int, start: int) -> OffsetAtTimestamp | None:
        """Return the batch's first record from offset `start` on whose timestamp is at least `timestamp`.

        Return None if there is no such record.

        Raises:
            LongBatch: this object, because decoding the batch takes too long for the event loop.
            KafkaError: CORRUPT_MESSAGE, the batch cannot be decoded.
        """
        header = self._header
        if header.record_count > AT_ONCE_RECORDS or header.size > AT_ONCE_BYTES:
            raise self
        try:
            payload = batch_payload(header, self._batch, AT_ONCE_BYTES)
        except KafkaError:
            if header.compression:  # too long, or damaged: we are not told which
                raise self from None
            raise
        return self._find(payload, timestamp, start)

    def find(self, timestamp: int, start: int) -> OffsetAtTimestamp | None:
        """Return the batch's first record from offset `start` on whose timestamp is at least `timestamp`.

        Return None if there is no such record.

        If the batch has more than `MAX_RECORDS` records, do not decode it. The result is then an estimate:
        the batch's first offset from `start` on, even if that record is earlier than `timestamp`.

        Raises:
            KafkaError: CORRUPT_MESSAGE, the batch cannot be decoded, or is too large when decompressed.
        """
        header = self._header
        if header.record_count > MAX_RECORDS:
            return OffsetAtTimestamp(
                max(timestamp, header.base_timestamp), max(start, header.base_offset), header.leader_epoch
            )
        return self._find(batch_payload(header, self._batch, MAX_BYTES), timestamp, start)

    def _find(self, payload: bytes, timestamp: int, start: int) -> OffsetAtTimestamp | None:
        header = self._header
        append_time = header.max_timestamp if header.is_log_append_time else None
        for record in decode_records(
            payload, header.record_count, header.base_offset, header.base_timestamp, append_time
        ):
            if record.timestamp >= timestamp and record.offset >= start:
                return OffsetAtTimestamp(record.timestamp, record.offset, header.leader_epoch)
        return None
