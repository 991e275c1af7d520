"""Offsets by time, as ListOffsets asks for them (KIP-79, KIP-734)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.records.batch import BatchHeader
from barnabas.records.builder import batch_records
from barnabas.storage.segment import LogSegment
from barnabas.storage.segments import Segments

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5


class OffsetAtTimestamp(NamedTuple):
    """A record's timestamp, offset and leader epoch; -1 for a timestamp or epoch that does not apply."""

    timestamp: int
    offset: int
    leader_epoch: int


def first_at_or_after(segments: Segments, timestamp: int, log_start_offset: int) -> OffsetAtTimestamp | None:
    """The first record at or after `log_start_offset` whose timestamp is at least `timestamp`."""
    for segment in segments:
        if segment.latest.timestamp >= timestamp:
            start = max(log_start_offset, segment.base_offset)
            entry = segment.times.floor(timestamp - 1)  # nothing up to its offset is late enough
            if entry:
                start = max(start, segment.base_offset + entry[1])
            found = _first_in(segment, start, timestamp, log_start_offset)
            if found:
                return found
    return None


def with_max_timestamp(segments: Segments, log_start_offset: int) -> OffsetAtTimestamp | None:
    """The first record that bears the largest timestamp of the log."""
    latest = max((segment.latest for segment in segments), key=lambda latest: latest.timestamp)
    if latest.timestamp < 0:
        return None
    return first_at_or_after(segments, latest.timestamp, log_start_offset)


def _first_in(
    segment: LogSegment, start: int, timestamp: int, log_start_offset: int
) -> OffsetAtTimestamp | None:
    for position, header in segment.headers(segment.position_of(start)):
        if header.latest_record_timestamp >= timestamp and header.last_offset >= log_start_offset:
            for record_timestamp, offset in _timestamps(segment, position, header):
                if record_timestamp >= timestamp and offset >= log_start_offset:
                    return OffsetAtTimestamp(record_timestamp, offset, header.leader_epoch)
    return None


def _timestamps(segment: LogSegment, position: int, header: BatchHeader) -> Iterator[tuple[int, int]]:
    if header.is_log_append_time and header.record_count == header.last_offset_delta + 1:
        yield from (
            (header.max_timestamp, offset) for offset in range(header.base_offset, header.next_offset)
        )
    else:
        for record in batch_records(header, segment.log.read_at(header.size, position)):
            yield record.timestamp, record.offset
