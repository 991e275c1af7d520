"""Reads batches from a log's segments, and finds the aborted transactions among them."""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

from barnabas.base.types import Chunk, Offset
from barnabas.broker.storage.segment import LogSegment
from barnabas.broker.storage.segments import Segments
from barnabas.broker.storage.transaction_index import AbortedTransaction


class FetchedRecords(NamedTuple):
    """The record batches that a read of a log returns, in the log's format.

    The last batch may be incomplete, because a read has a largest size.

    Attributes:
        chunks: the bytes of the batches, in the order of the log. It is empty if the read found no batch.
        size: the size of all chunks together, in bytes.
    """

    chunks: list[Chunk]
    size: int


NOTHING = FetchedRecords([], 0)


def read_batches(
    segments: Segments,
    log_end_offset: Offset,
    offset: Offset,
    max_bytes: int,
    max_offset: Offset,
    min_one: bool,
) -> FetchedRecords:
    """Return batches from one segment of a log: the batch that contains `offset`, and the batches after it.

    If compaction has removed all records from `offset` to the end of a segment, read the next segment.

    Args:
        segments: all segments of the log.
        log_end_offset: end of the log.
        offset: offset of the first record to read.
        max_bytes: largest size of the result. Its last batch may be incomplete.
        max_offset: end of the batches to read, for example the high watermark.
        min_one: whether the first batch is read even if it is larger than `max_bytes`.

    Raises:
        OSError: the disk failed.
        KafkaError: CORRUPT_MESSAGE, a batch is damaged.
        ColdRead: the read would wait for the disk, inside `OpenFiles.without_waiting`.
    """
    segment = segments.active
    index = len(segments) - 1
    if offset < segment.base_offset:
        index = segments.index_of(offset)
        segment = segments[index]
    while True:
        position = segment.position_of(offset)
        end_offset = log_end_offset if segment is segments.active else segments[index + 1].base_offset
        end = segment.size if max_offset >= end_offset else segment.position_of(max_offset)
        if position < end:
            data = segment.read(position, max_bytes, end, min_one)
            return FetchedRecords([data], len(data)) if len(data) else NOTHING
        if max_offset <= end_offset or segment is segments.active:
            return NOTHING
        index += 1  # compaction left nothing from `offset` to this segment's end
        segment = segments[index]


def find_aborted_transactions(
    segments: list[LogSegment], log_end_offset: Offset, offset: Offset, size: int
) -> list[AbortedTransaction]:
    """Return the aborted transactions that may have records in a read from `offset` on, by first offset.

    Args:
        segments: the segment that contains `offset`, and all later ones. This function may remove segments
            from the list.
        log_end_offset: end of the log.
        offset: offset of the first record of the read.
        size: size of the read in bytes.

    Raises:
        OSError: the disk failed.
        ColdRead: the look-up would wait for the disk, inside `OpenFiles.without_waiting`.
    """
    while (position := segments[0].position_of(offset)) == segments[0].size and len(segments) > 1:
        del segments[0]  # compaction left nothing from `offset` on, so it was read from the next
    end = segments[0].offset_bound(position + size)
    if end is None:
        end = segments[1].base_offset if len(segments) > 1 else log_end_offset
    found = []
    for aborted in chain.from_iterable(segment.aborted.from_offset(offset) for segment in segments):
        if aborted.first_offset < end:
            found.append(aborted)
        if aborted.last_stable_offset >= end:
            break  # later entries begin at or after this offset
    return sorted(found, key=lambda aborted: aborted.first_offset)
