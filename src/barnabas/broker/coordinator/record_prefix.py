"""The int16 before each key and value of an internal topic: the kind of a record, or the value's version."""

from __future__ import annotations

import struct
from typing import TypeVar

from barnabas.base.errors import ProtocolError
from barnabas.kafka.protocol.codec import decode
from barnabas.kafka.protocol.schema import Message

M = TypeVar("M", bound=Message)

PREFIX = struct.Struct(">h")


def prefix_of(data: bytes) -> int:
    """Return the kind of a key, or the version of a value.

    Raises:
        ProtocolError: the data is too short.
    """
    try:
        (number,) = PREFIX.unpack_from(data)
    except struct.error:
        raise ProtocolError(f"{len(data)} bytes of a record have neither kind nor version") from None
    return int(number)


def decode_key(cls: type[M], key: bytes) -> M:
    """Decode the bytes of a key that follow its kind. Raises ProtocolError if they are malformed."""
    return decode(cls, 0, key, PREFIX.size)


def decode_value(cls: type[M], value: bytes) -> M:
    """Decode a value of any version.

    Raises ProtocolError if the value is malformed or its version is unknown.
    """
    return decode(cls, prefix_of(value), value, PREFIX.size)
