"""Reads batches from a log's segments, and finds the aborted transactions among them."""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

from barnabas.base.types import Chunk, Offset
from barnabas.broker.storage.segment import LogSegment
from barnabas.broker.storage.segments import Segments
from barnabas.broker.storage.transaction_index import AbortedTransaction


class FetchedRecords(NamedTuple):
    """The batches that a read returns, as bytes. `size` is in bytes. The last batch may be incomplete."""

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
    """Return batches of one segment; see `PartitionLog.read` for the arguments.

    Raises:
        OSError: the disk failed.
        KafkaError: CORRUPT_MESSAGE, a batch is damaged.
        ColdRead: the read would wait for the disk, inside `OpenFiles.without_waiting`.
    """
    segment = segments.active
    place = len(segments) - 1
    if offset < segment.base_offset:
        place = segments.index_of(offset)
        segment = segments[place]
    while True:
        position = segment.position_of(offset)
        end_offset = log_end_offset if segment is segments.active else segments[place + 1].base_offset
        end = segment.size if max_offset >= end_offset else segment.position_of(max_offset)
        if position < end:
            data = segment.read(position, max_bytes, end, min_one)
            return FetchedRecords([data], len(data)) if len(data) else NOTHING
        if max_offset <= end_offset or segment is segments.active:
            return NOTHING
        place += 1  # compaction left nothing from `offset` to this segment's end
        segment = segments[place]


def find_aborted_transactions(
    segments: list[LogSegment], log_end_offset: Offset, offset: Offset, size: int
) -> list[AbortedTransaction]:
    """Return the aborted transactions that overlap the `size` bytes from `offset` on.

    The result is in the order of the first offsets. `segments` begins with the segment that contains
    `offset`, and has all later ones. This function may remove segments from the list.

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
