"""The variable-length parts of the wire format, called by the compiled codecs.

Compact lengths, tags and sizes are unsigned varints (KIP-482): seven bits a byte, the lowest first. The
compiled code handles lengths below 128 inline and calls these functions for the rest.
"""

from collections.abc import Sequence
from struct import Struct, unpack_from
from typing import Any, NoReturn

from barnabas.errors import ProtocolError

Buffer = bytes | bytearray | memoryview
Readable = bytes | bytearray

# Apache Kafka's own bounds; an array is also bounded by the bytes that are left, since no element is free.
MAX_STRING_LENGTH = 0x7FFF
MAX_ARRAY_LENGTH = 1_000_000
MAX_TAGGED_FIELDS = 10_000

_SMALL = 4096
"""Records shorter than this are copied, which costs less than one chunk more to send."""

_INT_ARRAYS = {code: [Struct(f">{n}{code}") for n in range(33)] for code in "iq"}


def read_uvarint(buffer: Readable, pos: int) -> tuple[int, int]:
    """The unsigned varint at `pos`, and the position after it."""
    byte = buffer[pos]
    if byte < 128:
        return byte, pos + 1
    value, shift = byte & 127, 7
    while True:
        pos += 1
        byte = buffer[pos]
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 28:
            raise ProtocolError("a varint is longer than 5 bytes")
    if value > 0xFFFFFFFF:
        raise ProtocolError("a varint exceeds 32 bits")
    return value, pos + 1


def uvarint(value: int) -> bytes:
    """`value` as an unsigned varint."""
    if value < 128:
        return value.to_bytes()
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_string_length(buffer: Readable, pos: int) -> tuple[int, int]:
    """A compact string's length plus one, when it does not fit in one byte."""
    length, pos = read_uvarint(buffer, pos)
    if length - 1 > MAX_STRING_LENGTH:
        raise ProtocolError(f"a string of {length - 1} bytes exceeds {MAX_STRING_LENGTH}")
    return length, pos


def string_length(length: int) -> bytes:
    """A compact string's length plus one, when it does not fit in one byte."""
    if length - 1 > MAX_STRING_LENGTH:
        raise ProtocolError(f"a string of {length - 1} bytes exceeds {MAX_STRING_LENGTH}")
    return uvarint(length)


def check_array(length: int, remaining: int) -> None:
    """Refuse an array that the frame cannot hold, before anything is allocated for it."""
    if length > remaining or length > MAX_ARRAY_LENGTH:
        raise ProtocolError(f"an array of {length} elements in the {remaining} bytes that are left")


def unexpected_null(field: str) -> NoReturn:
    raise ProtocolError(f"{field} must not be null")


def read_ints(code: str, buffer: Readable, pos: int, count: int) -> list[int]:
    """`count` fixed-size integers of one `struct` code."""
    if count <= 32:
        return list(_INT_ARRAYS[code][count].unpack_from(buffer, pos))
    check_array(count, len(buffer) - pos)
    return list(unpack_from(f">{count}{code}", buffer, pos))


def ints(code: str, values: Sequence[int]) -> bytes:
    """Fixed-size integers, one after another."""
    count = len(values)
    return (_INT_ARRAYS[code][count] if count <= 32 else Struct(f">{count}{code}")).pack(*values)


def skip_tags(buffer: Readable, pos: int, first: int) -> int:
    """The position after a section of tagged fields none of which is known; `first` is its first byte."""
    count, pos = tag_count(buffer, pos, first)
    for _ in range(count):
        _, pos = read_uvarint(buffer, pos)
        size, pos = read_uvarint(buffer, pos)
        pos += size
    return pos


def tag_count(buffer: Readable, pos: int, first: int) -> tuple[int, int]:
    """How many tagged fields follow; `first` is the byte before `pos`."""
    if first < 128:
        return first, pos
    count, pos = read_uvarint(buffer, pos - 1)
    if count > MAX_TAGGED_FIELDS:
        raise ProtocolError(f"{count} tagged fields exceed {MAX_TAGGED_FIELDS}")
    return count, pos


def put_records(records: Any, compact: bool, chunks: list[Buffer], out: bytearray) -> bytearray:
    """Append record batches without copying large ones; the bytearray to go on with."""
    parts: Sequence[Buffer] = records if isinstance(records, (list, tuple)) else (records,)
    size = sum(map(len, parts))
    out += uvarint(size + 1) if compact else size.to_bytes(4)
    if size < _SMALL:
        for part in parts:
            out += part
        return out
    chunks.append(out)
    chunks.extend(parts)
    return bytearray()
