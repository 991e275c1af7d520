"""Functions for the variable-length parts of the wire format, which the compiled codecs call.

Compact lengths, tags and sizes are unsigned varints (KIP-482): seven bits a byte, the lowest first. The
compiled code handles lengths below 128 inline and calls these functions for the rest.
"""

from collections.abc import Callable, Sequence
from struct import Struct, pack, unpack_from
from typing import Any, NoReturn

from barnabas.base.errors import ProtocolError, TooManyElements
from barnabas.base.types import Chunk

Readable = bytes | bytearray

# Apache Kafka's own bounds; an array is also bounded by the bytes that are left, since no element is free.
MAX_STRING_LENGTH = 0x7FFF
MAX_ARRAY_LENGTH = 1_000_000
MAX_TAGGED_FIELDS = 10_000

MAX_ELEMENTS = 50_000
"""The maximum number of elements of one message: those of all its arrays, nested ones too, and tagged fields.

Apache Kafka limits only each array. Without this limit, a request could take a hundred times the memory of
its bytes, and its response even more.
"""

_SMALL = 4096
"""Records shorter than this are copied, which costs less than one chunk more to send."""

SHORT_ARRAY = 32
"""Arrays of at most this many integers, such as a partition's replicas, have a prepared `struct` layout."""


def int_readers(code: str) -> list[Callable[[Readable, int], tuple[int, ...]]]:
    """Return functions that read short arrays of integers, each with the `struct` code `code`.

    The function at index `n`, from 0 to `SHORT_ARRAY`, takes a buffer and a position. It returns the `n`
    integers at this position. It raises struct.error if the buffer ends too soon.
    """
    return [Struct(f">{n}{code}").unpack_from for n in range(SHORT_ARRAY + 1)]


class IntWriters(dict[int, Callable[..., bytes]]):
    """Functions that encode an array of integers, and the fixed-size fields before it, in one call.

    The key is the array's length on the wire: the number of integers, plus one if the array is compact. A
    missing function is created at first use. ``writers[key](*fields, key, *integers)`` returns the bytes of
    the fields, the length and the integers.

    Args:
        before: `struct` codes of the fields.
        code: `struct` code of one integer.
        compact: whether the array is compact: its length is one byte. If false, the length is an int32.
    """

    def __init__(self, before: str, code: str, compact: bool) -> None:
        self.before, self.code, self.compact = before, code, compact

    def __missing__(self, length: int) -> Callable[..., bytes]:
        count = length - self.compact  # compact lengths are written plus one
        pack = Struct(f">{self.before}{'B' if self.compact else 'i'}{count}{self.code}").pack
        self[length] = pack
        return pack


def read_uvarint(buffer: Readable, pos: int) -> tuple[int, int]:
    """Return the unsigned varint at `pos`, and the position after it.

    Raises ProtocolError if the varint exceeds 32 bits, and IndexError if the buffer ends too soon.
    """
    value = buffer[pos]
    if value < 128:
        return value, pos + 1
    byte = buffer[pos + 1]
    value += (byte << 7) - 128
    if byte < 128:
        return value, pos + 2
    byte = buffer[pos + 2]
    value += (byte << 14) - (128 << 7)
    if byte < 128:
        return value, pos + 3
    byte = buffer[pos + 3]
    value += (byte << 21) - (128 << 14)
    if byte < 128:
        return value, pos + 4
    byte = buffer[pos + 4]
    if byte > 15:
        raise ProtocolError("a varint exceeds 32 bits")
    return value + (byte << 28) - (128 << 21), pos + 5


def uvarint(value: int) -> bytes:
    """Return `value` as an unsigned varint."""
    if value < 128:
        return value.to_bytes()
    if value < 1 << 14:
        return bytes((value & 127 | 128, value >> 7))
    if value < 1 << 21:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    return bytes((value & 127 | 128, value >> 7 & 127 | 128)) + uvarint(value >> 14)


def read_string(buffer: Readable, pos: int, required: str | None) -> tuple[str | None, int]:
    """Return a compact string (None for null), and the position after it.

    If the buffer ends too soon, the string is shorter, and the position is after the end of the buffer.
    `required` is the field's name if the field must not be null. In this case, null raises ProtocolError. A
    string of more than `MAX_STRING_LENGTH` bytes also raises it.
    """
    length, pos = read_uvarint(buffer, pos)
    if length == 0 and required:
        unexpected_null(required)
    if length - 1 > MAX_STRING_LENGTH:
        raise ProtocolError(f"a string of {length - 1} bytes exceeds {MAX_STRING_LENGTH}")
    stop = pos + length - 1
    return (buffer[pos:stop].decode("utf-8", "replace"), stop) if length else (None, pos)


def read_bytes(buffer: Readable, pos: int, required: str | None) -> tuple[bytes | None, int]:
    """Return compact bytes (None for null), and the position after them.

    If the buffer ends too soon, there are fewer bytes, and the position is after the end of the buffer.
    `required` is the field's name if the field must not be null. In this case, null raises ProtocolError.
    """
    length, pos = read_uvarint(buffer, pos)
    if length == 0 and required:
        unexpected_null(required)
    stop = pos + length - 1
    return (bytes(buffer[pos:stop]), stop) if length else (None, pos)


def read_array_length(buffer: Readable, pos: int, required: str | None) -> tuple[int, int]:
    """Return a compact array's length, -1 for null, and the position after it.

    `required` is the field's name if the field must not be null. In this case, null raises ProtocolError. A
    length above the number of bytes left in the buffer, or above `MAX_ARRAY_LENGTH`, also raises it.
    """
    length, pos = read_uvarint(buffer, pos)
    check_array_length(length - 1, len(buffer) - pos, required)
    return length - 1, pos


def check_array_length(length: int, remaining: int, required: str | None) -> None:
    """Check the length of an array in a received message. A negative `length` is null.

    `required` is the field's name if the field must not be null. In this case, null raises ProtocolError. A
    `length` above `remaining`, the number of bytes left, or above `MAX_ARRAY_LENGTH` also raises it.
    """
    if length < 0 and required:
        unexpected_null(required)
    if length > remaining or length > MAX_ARRAY_LENGTH:
        raise ProtocolError(f"an array of {length} elements in the {remaining} bytes that are left")


def string_length(length: int) -> bytes:
    """Return the prefix of a compact string: `length` as a varint.

    `length` is the string's size in bytes plus one. Compiled code handles short strings inline.

    Raises ProtocolError if the string has more than `MAX_STRING_LENGTH` bytes.
    """
    if length - 1 > MAX_STRING_LENGTH:
        raise ProtocolError(f"a string of {length - 1} bytes exceeds {MAX_STRING_LENGTH}")
    return uvarint(length)


def unexpected_null(field: str) -> NoReturn:
    raise ProtocolError(f"{field} must not be null")


def read_ints(code: str, buffer: Readable, pos: int, count: int) -> list[int]:
    """Return the `count` integers at `pos`. `code` is the `struct` code of one integer.

    Raises struct.error if the buffer ends too soon.
    """
    return list(unpack_from(f">{count}{code}", buffer, pos))


def ints(code: str, values: Sequence[int]) -> bytes:
    """Return integers as bytes. `code` is the `struct` code of one integer."""
    return pack(f">{len(values)}{code}", *values)


def read_tag_count(buffer: Readable, pos: int) -> tuple[int, int]:
    """Return the number of tagged fields that follow, and the position of the first.

    Raises ProtocolError if there are more than `MAX_TAGGED_FIELDS`.
    """
    count, pos = read_uvarint(buffer, pos)
    if count > MAX_TAGGED_FIELDS:
        raise ProtocolError(f"{count} tagged fields exceed {MAX_TAGGED_FIELDS}")
    return count, pos


def skip_tags(buffer: Readable, pos: int) -> int:
    """Return the position after a section of unknown tagged fields.

    The position is not checked: it can be after the end of the buffer. Raises ProtocolError if there are more
    than `MAX_TAGGED_FIELDS`, or a varint exceeds 32 bits. Raises IndexError if the buffer ends too soon.
    """
    count, pos = read_tag_count(buffer, pos)
    for _ in range(count):
        _, pos = read_uvarint(buffer, pos)
        size, pos = read_uvarint(buffer, pos)
        pos += size
    return pos


def skip_counted_tags(buffer: Readable, pos: int, left: int) -> tuple[int, int]:
    """Skip the section of unknown tagged fields at `pos`, and count them.

    Args:
        left: the number of elements that the message may still have. The elements of arrays and the tagged
            fields count.

    Returns:
        The position after the section, and `left` minus the number of tagged fields.

    Raises:
        TooManyElements: there are more than `left` tagged fields.
    """
    count, _ = read_uvarint(buffer, pos)
    if count > left:
        too_many_elements()
    return skip_tags(buffer, pos), left - count


def too_many_elements() -> NoReturn:
    raise TooManyElements("a message has more elements than it may")


def put_records(records: Any, compact: bool, chunks: list[Chunk], out: bytearray) -> bytearray:
    """Append the size of record batches, then the batches. Return the bytearray for the next fields.

    If the batches have fewer than `_SMALL` bytes together, they are copied to `out`, and `out` is returned.
    If they have `_SMALL` bytes or more, nothing is copied: `out` and then the buffers are appended to
    `chunks`, and a new bytearray is returned.

    Args:
        records: one buffer, or a list or tuple of buffers; not None.
        compact: write the size plus one as a varint; if false, write the size as an int32.
        chunks: the finished parts of the message.
        out: the bytearray to which the message is being written.
    """
    if isinstance(records, (list, tuple)):
        parts = records
        size = sum(map(len, parts))
    else:
        parts = (records,)
        size = len(records)
    out += uvarint(size + 1) if compact else size.to_bytes(4)
    if size < _SMALL:
        for part in parts:
            out += part
        return out
    chunks.append(out)
    chunks += parts
    return bytearray()
