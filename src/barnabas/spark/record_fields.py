"""Decodes the records of many batches at once, without an object per record.

A Python loop finds the start of each record, because only a record's length gives the start of the next one.
All other steps use NumPy for all records together. Varints (see `barnabas.kafka.records.record`) are decoded
byte by byte: step n decodes byte n of all varints that are long enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import Buffer
from barnabas.spark.visible_batches import Payload

Numbers: TypeAlias = npt.NDArray[np.int64]
_Bytes: TypeAlias = npt.NDArray[np.uint8]

#: The shift of the tenth byte, which is the last byte of a 64-bit varint.
_LAST_SHIFT = 63


@dataclass(frozen=True)
class Spans:
    """Start and length of each of many byte strings in a buffer, in order. `length` is -1 for null."""

    start: Numbers
    length: Numbers

    @property
    def end(self) -> Numbers:
        return self.start + np.maximum(self.length, 0)

    def __getitem__(self, which: Any) -> Spans:
        return Spans(self.start[which], self.length[which])


@dataclass(frozen=True)
class Fields:
    """The fields of many records: each array has one element for each record. Byte strings are in `data`."""

    data: Buffer
    offset: Numbers
    #: milliseconds since 1970
    timestamp: Numbers
    is_append_time: npt.NDArray[np.bool_]
    key: Spans
    value: Spans
    #: end of the record; its headers are between the end of its value and this position
    end: Numbers

    def __getitem__(self, which: slice) -> Fields:
        return Fields(
            self.data,
            self.offset[which],
            self.timestamp[which],
            self.is_append_time[which],
            self.key[which],
            self.value[which],
            self.end[which],
        )


@dataclass(frozen=True)
class Headers:
    """The headers of many records.

    `count` has the number of headers of each record. `key` and `value` have one element for each header.
    """

    count: Numbers
    key: Spans
    value: Spans


def fields_of(payloads: Sequence[Payload]) -> Fields:
    """Decode the records of some batches, in order.

    There must be at least one batch, and each must have records.

    Raises:
        KafkaError: CORRUPT_MESSAGE, the bytes are not the records that the batch headers announce.
    """
    data, payloads = _together(payloads)
    buffer = np.frombuffer(data, np.uint8)
    headers = [payload.header for payload in payloads]
    counts = [header.record_count for header in headers]
    try:
        length, body = _varints(buffer, _starts(data, payloads))
        timestamp_delta, position = _varints(buffer, body + 1)  # after the attributes
        offset_delta, position = _varints(buffer, position)
        key = _sized(buffer, position)
        value = _sized(buffer, key.end)
    except IndexError:
        raise _corrupt("a record is cut short") from None
    end = body + length
    if (value.end >= end).any():
        raise _corrupt("a record is shorter than its fields")
    offset = np.repeat([header.base_offset for header in headers], counts) + offset_delta
    last = np.repeat([header.last_offset_delta for header in headers], counts)
    if ((offset_delta < 0) | (offset_delta > last)).any() or (np.diff(offset) <= 0).any():
        raise _corrupt("the offsets of a batch's records do not rise, or are not the batch's")
    append_time = np.repeat([header.is_log_append_time for header in headers], counts)
    max_timestamp = np.repeat([header.max_timestamp for header in headers], counts)
    base_timestamp = np.repeat([header.base_timestamp for header in headers], counts)
    return Fields(
        data,
        offset,
        np.where(append_time, max_timestamp, base_timestamp + timestamp_delta),
        append_time,
        key,
        value,
        end,
    )


def headers_of(fields: Fields) -> Headers:
    """Return the positions of all headers of the records in `fields`, record by record.

    Raises:
        KafkaError: CORRUPT_MESSAGE. A record has an impossible number of headers, a header has no key, or the
            headers do not end exactly where the record ends.
    """
    buffer = np.frombuffer(fields.data, np.uint8)
    try:
        count, position = _varints(buffer, fields.value.end)
        if ((count < 0) | (count > fields.end - position)).any():
            raise _corrupt("a record has a wrong number of headers")
        # the spans of a record's headers, after those of the records before it
        first = np.cumsum(count) - count
        total = int(count.sum())
        key, value = (Spans(np.empty(total, np.int64), np.empty(total, np.int64)) for _ in "kv")
        left = np.flatnonzero(count)
        for number in range(int(count.max(initial=0))):
            left = left[count[left] > number]
            index = first[left] + number
            for found in (key, value):
                each = _sized(buffer, position[left])
                found.start[index], found.length[index] = each.start, each.length
                position[left] = each.end
    except IndexError:
        raise _corrupt("a record's headers are cut short") from None
    if (position != fields.end).any() or (key.length < 0).any():
        raise _corrupt("a record's headers are not as long as the record says, or have no key")
    return Headers(count, key, value)


def _together(payloads: Sequence[Payload]) -> tuple[Buffer, Sequence[Payload]]:
    """Return one buffer that contains all batches, and the payloads with their positions in it.

    If all batches are in the same buffer already, it is not copied.
    """
    first = payloads[0].data
    if all(payload.data is first for payload in payloads):
        return first, payloads
    position = 0
    moved = []
    for header, _, start, end in payloads:
        moved.append(Payload(header, b"", position, position + end - start))
        position += end - start
    return b"".join([memoryview(data)[start:end] for _, data, start, end in payloads]), moved


def _starts(data: Buffer, payloads: Sequence[Payload]) -> Numbers:
    """Return the start position of each record. Raises KafkaError if a batch has another record count."""
    starts: list[int] = []
    for header, _, start, end in payloads:
        known = len(starts)
        if _append_starts(data, start, end, starts) != end or len(starts) - known != header.record_count:
            raise _corrupt(f"a batch does not hold the {header.record_count} records it speaks of")
    return np.array(starts, np.int64)


def _append_starts(data: Buffer, position: int, end: int, starts: list[int]) -> int:
    """Append the start positions of the records between `position` and `end` to `starts`.

    Return the end of the last record. For speed, lengths of one and two bytes are decoded inline. A length is
    a zigzag varint, so its unsigned value is twice the length. `fields_of` rejects negative lengths.
    """
    append = starts.append
    while position < end:
        append(position)
        byte = data[position]
        if byte < 0x80:
            position += 1 + (byte >> 1)
            continue
        more = data[position + 1]
        if more < 0x80:
            position += 2 + ((byte & 0x7F | more << 7) >> 1)
            continue
        length = byte & 0x7F
        shift = 7
        while byte > 0x7F:
            position += 1
            byte = data[position]
            length |= (byte & 0x7F) << shift
            shift += 7
        position += 1 + (length >> 1)
    return position


def _varints(buffer: _Bytes, position: Numbers) -> tuple[Numbers, Numbers]:
    """Decode the zigzag varint at each position. Return the numbers, and the position after each.

    Raises KafkaError CORRUPT_MESSAGE if a varint has more than 10 bytes.
    """
    byte = buffer[position]
    after = position + 1
    found = (byte & 0x7F).astype(np.uint64)
    longer = np.flatnonzero(byte > 0x7F)
    shift = 7
    while longer.size:
        if shift > _LAST_SHIFT:
            raise _corrupt("a varint is longer than 10 bytes")
        byte = buffer[after[longer]]
        found[longer] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[longer] += 1
        longer = longer[byte > 0x7F]
        shift += 7
    zigzag = (found >> np.uint64(1)).view(np.int64) ^ -(found & np.uint64(1)).view(np.int64)
    return zigzag, after


def _sized(buffer: _Bytes, position: Numbers) -> Spans:
    """Return the start and the length of the byte string at each position; a length of -1 is null.

    At the position there is a varint, the length. The bytes follow the varint. Raises KafkaError
    CORRUPT_MESSAGE if a length is impossible.
    """
    length, start = _varints(buffer, position)
    if ((length < -1) | (length > buffer.size)).any():
        raise _corrupt("a field of a record has a length that cannot be")
    return Spans(start, length)


def _corrupt(message: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, message)
