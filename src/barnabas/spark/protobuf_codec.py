"""Registered Protobuf in Arrow: columns of payloads to columns of records, and back.

Behind the schema's id a payload says which message of the schema it is: the indexes of the message, of the
first level and then within, as zigzag varints with their number before them; a single 0 stands for the first
message. A record is read with the reader's message, whatever version wrote it: Protobuf finds fields by their
numbers.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.message_factory import GetMessageClass

from barnabas.errors import ConfigError
from barnabas.spark.payloads import PayloadDecoder, PayloadEncoder, RowUnfitError, Undecodable
from barnabas.spark.protobuf_columns import MessageColumns
from barnabas.spark.protobuf_schema import ProtobufFile
from barnabas.spark.registry_client import PROTOBUF, RegisteredSchema, RegistryClient

_VARINT_BYTES = 10
_DEEPEST = 32


class Decoder(PayloadDecoder[ProtobufFile]):
    """Reads the payloads of one message."""

    def __init__(
        self,
        reader: RegisteredSchema,
        registry: RegistryClient,
        column: pa.DataType | None = None,
        message: str = "",
    ) -> None:
        """`message` is its full name; by default it is the first one of the schema.

        Raises:
            ConfigError: the schema has no such message, or no column can hold it.
        """
        descriptor = ProtobufFile(reader).message(message)
        self._name = descriptor.full_name
        self._class: Any = GetMessageClass(descriptor)
        self._columns = MessageColumns(descriptor)
        self._registry = registry
        super().__init__(self._columns.arrow, column)

    def _writer(self, id_: int) -> ProtobufFile:
        return ProtobufFile(self._registry.by_id(id_, PROTOBUF))

    def _record(self, payload: bytes, start: int, writer: ProtobufFile) -> Any:
        indexes, start = _read_indexes(payload, start)
        try:
            name = writer.at(indexes).full_name
        except ConfigError as error:
            raise Undecodable(str(error)) from None
        if name != self._name:
            raise Undecodable(f"it is a message {name}, not {self._name}")
        try:
            return self._columns.read(self._class.FromString(payload[start:]))
        except DecodeError as error:
            raise Undecodable(f"it does not fit its schema: {error}") from None


class Encoder(PayloadEncoder):
    """Writes one message of a schema."""

    def __init__(self, schema: RegisteredSchema, id_: int, message: str = "") -> None:
        """Raises ConfigError when the schema has no such message, or no column can hold it."""
        file = ProtobufFile(schema)
        descriptor = file.message(message)
        self._class: Any = GetMessageClass(descriptor)
        self._columns = MessageColumns(descriptor)
        required = [field.name for field in descriptor.fields if field.is_required]
        super().__init__(self._columns.arrow, self._columns.raw, id_, required)
        self._indexes = _write_indexes(file.indexes_of(descriptor))

    def _content(self, row: dict[str, Any]) -> bytes:
        message = self._class()
        self._columns.write(message, row)
        try:
            return self._indexes + bytes(message.SerializeToString(deterministic=True))
        except (EncodeError, ValueError) as error:
            raise RowUnfitError(f"the schema does not allow {row}: {error}") from None


def _read_indexes(payload: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """The indexes of the message, and where it begins."""
    count, start = _read_varint(payload, start)
    if count == 0:
        return (0,), start
    if not 0 < count <= _DEEPEST:
        raise Undecodable(f"its message lies {count} levels deep, which is no message of a schema")
    indexes = []
    for _ in range(count):
        index, start = _read_varint(payload, start)
        indexes.append(index)
    return tuple(indexes), start


def _read_varint(payload: bytes, start: int) -> tuple[int, int]:
    value = 0
    for number, byte in enumerate(payload[start : start + _VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), start + number + 1
    raise Undecodable("it ends before its message begins")


def _write_indexes(indexes: tuple[int, ...]) -> bytes:
    if indexes == (0,):
        return b"\0"
    return b"".join(_varint(number << 1) for number in (len(indexes), *indexes))


def _varint(value: int) -> bytes:
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])
