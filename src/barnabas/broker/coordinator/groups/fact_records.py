"""Encodes and decodes the records of consumer groups and share groups, which each store one fact of a group.

A key begins with the number of the record's kind, and a value with its version: see
`barnabas.broker.coordinator.groups.codec`. A value of None deletes the fact that the key names.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TypeVar

from barnabas.base.errors import ProtocolError
from barnabas.kafka.protocol.codec import decode, encode
from barnabas.kafka.protocol.schema import Message

K = TypeVar("K", bound=Message)

_PREFIX = struct.Struct(">h")
#: the only version of these keys and values
_VERSION = 0


def encode_fact(kind: int, key: Message, value: Message | None) -> tuple[bytes, bytes | None]:
    """Return the key and the value for the log. `kind` is the number of the record's kind."""
    encoded = encode(key, _VERSION, _PREFIX.pack(kind))
    return encoded, None if value is None else encode(value, _VERSION, _PREFIX.pack(_VERSION))


def decode_fact(
    kinds: Mapping[int, tuple[type[K], type[Message]]], kind: int, key: bytes, value: bytes | None
) -> tuple[K, Message | None]:
    """Decode the key and the value of a record. `kinds` has the key class and value class of each kind.

    Raises:
        ProtocolError: the record cannot be decoded, or its value has an unknown version.
    """
    key_class, value_class = kinds[kind]
    key_message = decode(key_class, _VERSION, key, _PREFIX.size)
    if value is None:
        return key_message, None
    if len(value) < _PREFIX.size or _PREFIX.unpack_from(value) != (_VERSION,):
        raise ProtocolError(f"{value_class.__name__} has another version than {_VERSION}, the one known")
    return key_message, decode(value_class, _VERSION, value, _PREFIX.size)
