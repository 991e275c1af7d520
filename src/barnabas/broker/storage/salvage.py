"""Finds the whole batches in a file that is damaged in some places."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from barnabas.base.errors import KafkaError
from barnabas.base.types import Offset
from barnabas.broker.storage.segment import MAX_RELATIVE_OFFSET
from barnabas.kafka.records.batch import HEADER_SIZE, MAGIC, MAGIC_AT, BatchHeader, check_crc, parse_header

if TYPE_CHECKING:
    import mmap

_MAGIC = bytes([MAGIC])


def whole_batches(
    data: bytes | mmap.mmap, base_offset: Offset, expected: Offset | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and header of each whole batch in a segment's bytes, and skip bytes between them.

    Args:
        data: bytes of the segment, from the start of a batch on.
        base_offset: base offset of the segment.
        expected: batches that begin before this offset are ignored; by default the segment's base offset.
    """
    position = 0
    floor = base_offset if expected is None else expected
    while position + HEADER_SIZE <= len(data):
        header = _batch_at(data, position, floor, base_offset + MAX_RELATIVE_OFFSET)
        if header is not None:
            yield position, header
            floor = header.next_offset
            position += header.size
            continue
        magic = data.find(_MAGIC, position + MAGIC_AT + 1)
        if magic < 0:
            return
        position = magic - MAGIC_AT


def _batch_at(data: bytes | mmap.mmap, position: int, floor: Offset, limit: Offset) -> BatchHeader | None:
    header = parse_header(data[position : position + HEADER_SIZE])
    if (
        header.magic != MAGIC
        or not floor <= header.base_offset <= header.last_offset <= limit
        or not HEADER_SIZE <= header.size <= len(data) - position
    ):
        return None
    try:
        check_crc(header, data[position : position + header.size])
    except KafkaError:
        return None
    return header
