"""Decodes and encodes single records.

The broker copies most batches without decoding their records. It decodes records of internal topics, and
records that it must check, compact or find by timestamp. The layout of a record
(https://kafka.apache.org/documentation/#record), with a zigzag varint for each length, delta and count:

    length, attributes (1 byte, 0), timestamp delta, offset delta,
    key length (-1: none), key, value length (-1: none), value,
    headers count, then for each: key length, key (UTF-8), value length (-1: none), value
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.kafka.records.batch import NO_TIMESTAMP

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """One record. `offset` is -1 until the record is in a partition."""

    key: bytes | None
    value: bytes | None
    timestamp: int = NO_TIMESTAMP
    headers: tuple[Header, ...] = ()
    offset: int = -1


#: makes a record from its fields; calling `Record` takes three times as long
_record = tuple.__new__


class RecordSpan(NamedTuple):
    """The position of one record in an uncompressed batch payload, and the fields that compaction needs.

    `start` and `end` are positions in the payload. The record's length is at `start`.
    """

    start: int
    end: int
    #: the end of the timestamp delta, the only field that a new base timestamp changes
    rest: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


_span = tuple.__new__


def encode_varint(value: int) -> bytes:
    """Encode `value` (64 bits, signed) as a zigzag varint."""
    rest = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


#: most lengths and deltas
_SHORT = {value: encode_varint(value) for value in range(-64, 1024)}

#: the varint of a null key or value: -1
_NULL = 0x01


def _sized(data: bytes | None) -> bytes:
    return b"\x01" if data is None else (_SHORT.get(len(data)) or encode_varint(len(data))) + data


def encode_record(record: Record, offset_delta: int, timestamp_delta: int) -> bytes:
    """Encode one record of an uncompressed batch. `record.offset` and `record.timestamp` are not used.

    `offset_delta` and `timestamp_delta` (ms) are the differences from the batch's base offset and base
    timestamp.
    """
    key, value, _, headers, _ = record
    short = _SHORT.get
    # `_sized`, without the calls, where it can be.
    parts = [
        b"\x00",
        short(timestamp_delta) or encode_varint(timestamp_delta),
        short(offset_delta) or encode_varint(offset_delta),
        *((b"\x01",) if key is None else (short(len(key)) or encode_varint(len(key)), key)),
        *((b"\x01",) if value is None else (short(len(value)) or encode_varint(len(value)), value)),
        short(len(headers)) or encode_varint(len(headers)),
    ]
    for name, content in headers:
        parts += (_sized(name.encode()), _sized(content))
    body = b"".join(parts)
    return (short(len(body)) or encode_varint(len(body))) + body


def encode_records(records: Iterable[Record], offset_deltas: Iterable[int], base_timestamp: int) -> bytes:
    """Return the uncompressed payload of a batch.

    `offset_deltas` has one value for each record. `base_timestamp` is the batch's base timestamp, in ms.
    """
    return b"".join(
        encode_record(record, delta, record.timestamp - base_timestamp)
        for record, delta in zip(records, offset_deltas, strict=True)
    )


def decode_records(
    payload: bytes, count: int, base_offset: int, base_timestamp: int, append_time: int | None = None
) -> Iterator[Record]:
    """Yield the records of an uncompressed batch payload, and decode each one when it is needed.

    `count`, `base_offset` and `base_timestamp` (ms) are from the batch's header. If the batch has
    LogAppendTime, `append_time` (ms) replaces the timestamps of its records.

    Raises:
        KafkaError: CORRUPT_MESSAGE, the bytes are not `count` records.
    """
    position = 0
    size = len(payload)
    timestamp = append_time
    try:
        for _ in range(count):
            # Most varints are one byte long: reading those in place makes the loop twice as fast.
            length = payload[position]
            if length < 0x80:
                length, position = (length >> 1) ^ -(length & 1), position + 1
            else:
                length, position = _read_varint(payload, position)
            end = position + length
            if length < 0 or end > size:
                raise _corrupt("a record is longer than its batch")
            delta = payload[position + 1]  # after the attributes
            if delta < 0x80:
                delta, position = (delta >> 1) ^ -(delta & 1), position + 2
            else:
                delta, position = _read_varint(payload, position + 1)
            if append_time is None:
                timestamp = base_timestamp + delta
            delta = payload[position]
            if delta < 0x80:
                delta, position = (delta >> 1) ^ -(delta & 1), position + 1
            else:
                delta, position = _read_varint(payload, position)
            key, position = _read_sized(payload, position)
            value, position = _read_sized(payload, position)
            headers: tuple[Header, ...] = ()
            if payload[position] == 0:
                position += 1
            else:
                headers, position = _read_headers(payload, position)
            if position != end:
                raise _corrupt(f"a record says it has {length} bytes and has {length + position - end}")
            yield _record(Record, (key, value, timestamp, headers, base_offset + delta))
    except (IndexError, ValueError) as error:
        raise _corrupt(f"a record cannot be read: {error}") from error
    if position != size:
        raise _corrupt(f"{size - position} bytes follow the {count} records of a batch")


def keys_and_values(data: bytes, position: int, count: int) -> list[tuple[bytes | None, bytes | None]]:
    """Return key and value (None for null) of each of the `count` records that begin at `position`.

    Headers are not decoded.

    Raises:
        KafkaError: CORRUPT_MESSAGE, `data` ends inside the records, or a length in them is wrong.
    """
    found = []
    try:
        for _ in range(count):
            length = data[position]
            if length < 0x80:
                end = position + 1 + (length >> 1)
                position += 2  # the attributes
            else:
                length, position = _read_varint(data, position)
                end = position + length
                position += 1
            while data[position] > 0x7F:  # the timestamp's delta
                position += 1
            position += 1
            while data[position] > 0x7F:  # the offset's
                position += 1
            key, position = _read_sized(data, position + 1)
            value, position = _read_sized(data, position)
            if position >= end:
                raise _corrupt("a record is shorter than its fields")
            found.append((key, value))
            position = end
    except IndexError as error:
        raise _corrupt(f"a record cannot be read: {error}") from error
    if position > len(data):
        raise _corrupt("a record is longer than its batch")
    return found


def records_without_key(payload: bytes, count: int, limit: int) -> list[int]:
    """Return the indexes of the first `limit` records of an uncompressed batch payload that have no key.

    Raises:
        KafkaError: CORRUPT_MESSAGE, the bytes are not `count` records. After `limit` indexes the rest of the
            bytes is not checked.
    """
    found: list[int] = []
    position = 0
    size = len(payload)
    try:
        for index in range(count):
            length = payload[position]
            if length < 0x80:
                length, position = (length >> 1) ^ -(length & 1), position + 1
            else:
                length, position = _read_varint(payload, position)
            end = position + length
            position += 1  # the attributes
            while payload[position] > 0x7F:  # the timestamp's delta
                position += 1
            position += 1
            while payload[position] > 0x7F:  # the offset's
                position += 1
            if payload[position + 1] == _NULL:
                found.append(index)
                if len(found) == limit:
                    return found
            if length < 0 or position >= end:
                raise _corrupt("a record is shorter than its fields")
            position = end
    except IndexError as error:
        raise _corrupt(f"a record cannot be read: {error}") from error
    if position != size:
        raise _corrupt(f"the {count} records of a batch take {position} bytes, not {size}")
    return found


def record_spans(payload: bytes, count: int) -> list[RecordSpan]:
    """Return the position of each record of an uncompressed batch payload.

    Values and headers are not decoded.

    Raises:
        KafkaError: CORRUPT_MESSAGE, the bytes are not `count` records.
    """
    found = []
    position = 0
    size = len(payload)
    try:
        for _ in range(count):
            start = position
            length = payload[position]
            if length < 0x80:
                length, position = (length >> 1) ^ -(length & 1), position + 1
            else:
                length, position = _read_varint(payload, position)
            end = position + length
            if length < 0 or end > size:
                raise _corrupt("a record is longer than its batch")
            timestamp_delta = payload[position + 1]  # after the attributes
            if timestamp_delta < 0x80:
                timestamp_delta = (timestamp_delta >> 1) ^ -(timestamp_delta & 1)
                position += 2
            else:
                timestamp_delta, position = _read_varint(payload, position + 1)
            rest = position
            offset_delta = payload[position]
            if offset_delta < 0x80:
                offset_delta, position = (offset_delta >> 1) ^ -(offset_delta & 1), position + 1
            else:
                offset_delta, position = _read_varint(payload, position)
            key, position = _read_sized(payload, position)
            has_value = payload[position] != _NULL
            if position >= end:
                raise _corrupt("a record ends before its value")
            found.append(_span(RecordSpan, (start, end, rest, timestamp_delta, offset_delta, key, has_value)))
            position = end
    except (IndexError, ValueError) as error:
        raise _corrupt(f"a record cannot be read: {error}") from error
    if position != size:
        raise _corrupt(f"{size - position} bytes follow the {count} records of a batch")
    return found


def shifted(payload: bytes, span: RecordSpan, shift: int) -> bytes:
    """Return the bytes of the record at `span`, for a batch whose base timestamp is `shift` ms later.

    `payload` has the decompressed records of the record's present batch. The record keeps its timestamp, so
    its timestamp delta changes.
    """
    delta = encode_varint(span.timestamp_delta - shift)
    body = b"\x00" + delta + payload[span.rest : span.end]
    return encode_varint(len(body)) + body


def _read_headers(payload: bytes, position: int) -> tuple[tuple[Header, ...], int]:
    count, position = _read_varint(payload, position)
    if not 0 <= count <= len(payload) - position:
        raise _corrupt(f"a record says it has {count} headers")
    found = []
    for _ in range(count):
        name, position = _read_sized(payload, position)
        if name is None:
            raise _corrupt("a record has a header without a key")
        value, position = _read_sized(payload, position)
        found.append((name.decode("utf-8", "replace"), value))
    return tuple(found), position


def _read_sized(payload: bytes, position: int) -> tuple[bytes | None, int]:
    length = payload[position]
    if length < 0x80:
        length, position = (length >> 1) ^ -(length & 1), position + 1
    else:
        length, position = _read_varint(payload, position)
    if length < 0:
        if length == -1:
            return None, position
        raise _corrupt(f"a record holds a length of {length}")
    end = position + length
    if end > len(payload):
        raise _corrupt("a field of a record is longer than its batch")
    return payload[position:end], end


def _read_varint(payload: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = payload[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), position
        shift += 7
        if shift > 63:
            raise _corrupt("a varint is longer than 10 bytes")


def _corrupt(message: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, message)
