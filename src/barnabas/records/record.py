"""Records, decoded and encoded one by one.

For tools, internal topics, timestamps and compaction: neither produce nor fetch comes here. A record is
(https://kafka.apache.org/documentation/#record), every length and delta a zigzag varint:

    length, attributes (1 byte, 0), timestamp delta, offset delta,
    key length (-1: none), key, value length (-1: none), value,
    headers count, then for each: key length, key (UTF-8), value length (-1: none), value
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from barnabas.errors import ErrorCode, KafkaError
from barnabas.records.batch import NO_TIMESTAMP

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """One record. `offset` is where it lies in its partition, -1 before it lies anywhere."""

    key: bytes | None
    value: bytes | None
    timestamp: int = NO_TIMESTAMP
    headers: tuple[Header, ...] = ()
    offset: int = -1


def encode_varint(value: int) -> bytes:
    """`value` (64 bits, signed) as a zigzag varint."""
    rest = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


#: -64 to 63 take one byte: most lengths and deltas
_SHORT = {value: encode_varint(value) for value in range(-64, 64)}


def _varint(value: int) -> bytes:
    return _SHORT.get(value) or encode_varint(value)


def _sized(data: bytes | None) -> bytes:
    return b"\x01" if data is None else _varint(len(data)) + data


def encode_record(record: Record, offset_delta: int, timestamp_delta: int) -> bytes:
    """The bytes of one record in an uncompressed batch."""
    parts = [
        b"\x00",
        _varint(timestamp_delta),
        _varint(offset_delta),
        _sized(record.key),
        _sized(record.value),
        _varint(len(record.headers)),
    ]
    for key, value in record.headers:
        parts.append(_sized(key.encode()))
        parts.append(_sized(value))
    body = b"".join(parts)
    return _varint(len(body)) + body


def encode_records(records: Iterable[Record], offset_deltas: Iterable[int], base_timestamp: int) -> bytes:
    """The records of a batch, uncompressed."""
    return b"".join(
        encode_record(record, delta, record.timestamp - base_timestamp)
        for record, delta in zip(records, offset_deltas, strict=True)
    )


def decode_records(
    payload: bytes, count: int, base_offset: int, base_timestamp: int, append_time: int | None = None
) -> Iterator[Record]:
    """The records of an uncompressed batch payload, lazily.

    `append_time` stands in for every timestamp when the batch bears the broker's time.

    Raises:
        KafkaError: CORRUPT_MESSAGE, the bytes are not `count` records.
    """
    position = 0
    try:
        for _ in range(count):
            length, position = _read_varint(payload, position)
            end = position + length
            if length < 0 or end > len(payload):
                raise _corrupt("a record is longer than its batch")
            record, position = _decode_record(payload, position, base_offset, base_timestamp, append_time)
            if position != end:
                raise _corrupt(f"a record says it has {length} bytes and has {length + position - end}")
            yield record
    except (IndexError, ValueError) as error:
        raise _corrupt(f"a record cannot be read: {error}") from error
    if position != len(payload):
        raise _corrupt(f"{len(payload) - position} bytes follow the {count} records of a batch")


def _decode_record(
    payload: bytes, position: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> tuple[Record, int]:
    timestamp_delta, position = _read_varint(payload, position + 1)
    offset_delta, position = _read_varint(payload, position)
    key, position = _read_sized(payload, position)
    value, position = _read_sized(payload, position)
    header_count, position = _read_varint(payload, position)
    if header_count < 0 or header_count > len(payload) - position:
        raise _corrupt(f"a record says it has {header_count} headers")
    headers: tuple[Header, ...] = ()
    if header_count:
        found = []
        for _ in range(header_count):
            name, position = _read_sized(payload, position)
            if name is None:
                raise _corrupt("a record has a header without a key")
            header_value, position = _read_sized(payload, position)
            found.append((name.decode("utf-8", "replace"), header_value))
        headers = tuple(found)
    timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
    return Record(key, value, timestamp, headers, base_offset + offset_delta), position


def _read_sized(payload: bytes, position: int) -> tuple[bytes | None, int]:
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
    byte = payload[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    result = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        if shift > 63:
            raise _corrupt("a varint is longer than 10 bytes")
        byte = payload[position]
        position += 1
        result |= (byte & 0x7F) << shift
        shift += 7
    return (result >> 1) ^ -(result & 1), position


def _corrupt(message: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, message)
