"""Message indexes: they tell which message type of a registered Protobuf schema a payload contains.

In a payload, the indexes follow the id of the schema. First comes their number, then the index of a top-level
message, then the index of a message nested in that message, and so on. All are zigzag varints. For example,
2, 1, 0 means the first message in the second top-level message. A single 0 means the first top-level message.

Source: Confluent's wire format, https://docs.confluent.io/platform/current/schema-registry/fundamentals/
serdes-develop/index.html#wire-format
"""

from __future__ import annotations

from barnabas.kafka.records.record import encode_varint

_MAX_BYTES = 10
_DEEPEST = 32


def read_message_indexes(payload: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Return the message indexes at `start`, and the position of the message after them.

    Raises:
        ValueError: the indexes are not valid; the text says why.
    """
    count, start = _read_varint(payload, start)
    if count == 0:
        return (0,), start
    if not 0 < count <= _DEEPEST:
        raise ValueError(f"its message lies {count} levels deep, which is no message of a schema")
    indexes = []
    for _ in range(count):
        index, start = _read_varint(payload, start)
        if index < 0:
            raise ValueError(f"the schema has no message at {index}")
        indexes.append(index)
    return tuple(indexes), start


def write_message_indexes(indexes: tuple[int, ...]) -> bytes:
    """Return message indexes in Confluent's wire format."""
    if indexes == (0,):
        return b"\0"
    return b"".join(encode_varint(number) for number in (len(indexes), *indexes))


def _read_varint(payload: bytes, start: int) -> tuple[int, int]:
    value = 0
    for number, byte in enumerate(payload[start : start + _MAX_BYTES]):
        value |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), start + number + 1
    raise ValueError("it ends before its message begins")
