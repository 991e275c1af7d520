"""Converts columns of registered Protobuf payloads to columns of records in Arrow, and back.

The decoder parses records of any version as the reader's message, because Protobuf identifies fields by their
numbers.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.message_factory import GetMessageClass

from barnabas.base.errors import ConfigError
from barnabas.base.installation import pip_install
from barnabas.client.schemas.protobuf_file import ProtobufFile
from barnabas.client.schemas.registered import Registered
from barnabas.kafka.records.message_indexes import read_message_indexes, write_message_indexes
from barnabas.spark.payloads import FindWriter, PayloadDecoder, PayloadEncoder, RowUnfitError, Undecodable
from barnabas.spark.protobuf_columns import MessageColumns


class Decoder(PayloadDecoder[ProtobufFile]):
    """Decodes the payloads of one message type to records."""

    def __init__(
        self,
        reader: Registered,
        find_writer: FindWriter,
        column: pa.DataType | None = None,
        message: str = "",
    ) -> None:
        """Create a decoder.

        Args:
            reader: the Protobuf schema with the message type of the result.
            find_writer: is called with each new schema id in a payload, and returns the registered schema
                with this id.
            column: the Arrow type of the result; None for the type that follows from the message type.
            message: full name of the message type; "" for the first message type in `reader`.

        Raises:
            ConfigError: `reader` is invalid or does not contain `message`, or the message type has no column
                type.
        """
        _, descriptor = _message(reader, message)
        self._name = descriptor.full_name
        self._class: Any = GetMessageClass(descriptor)
        self._columns = MessageColumns(descriptor)
        self._find_writer = find_writer
        super().__init__(self._columns.arrow, column)

    def _writer(self, id_: int) -> ProtobufFile:
        return _linked(self._find_writer(id_))

    def _record(self, payload: bytes, start: int, writer: ProtobufFile) -> Any:
        try:
            indexes, start = read_message_indexes(payload, start)
            name = writer.at(indexes).full_name
        except ValueError as error:
            raise Undecodable(str(error)) from None
        if name != self._name:
            raise Undecodable(f"it is a message {name}, not {self._name}")
        try:
            return self._columns.read(self._class.FromString(payload[start:]))
        except DecodeError as error:
            raise Undecodable(f"it does not fit its schema: {error}") from None


class Encoder(PayloadEncoder):
    """Encodes records as payloads of one message type of a schema."""

    def __init__(self, schema: Registered, message: str = "") -> None:
        """Create an encoder.

        `message` is the full name of the message type, by default the first of the schema.

        Raises ConfigError if the schema is invalid or has no such message, or no column can hold the message.
        """
        file, descriptor = _message(schema, message)
        self._class: Any = GetMessageClass(descriptor)
        self._columns = MessageColumns(descriptor)
        required = [field.name for field in descriptor.fields if field.is_required]
        super().__init__(self._columns.arrow, self._columns.raw, schema.id, required)
        try:
            self._indexes = write_message_indexes(file.indexes_of(descriptor))
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def _content(self, row: dict[str, Any]) -> bytes:
        message = self._class()
        self._columns.write(message, row)
        try:
            return self._indexes + bytes(message.SerializeToString(deterministic=True))
        except (EncodeError, ValueError) as error:
            raise RowUnfitError(f"the schema does not allow {row}: {error}") from None


def _linked(schema: Registered) -> ProtobufFile:
    """Return the descriptors of a schema and its imports.

    Raises ConfigError if the schema is invalid, or an import is not installed.
    """
    try:
        return ProtobufFile(schema)
    except ModuleNotFoundError as error:
        hint = pip_install("protobuf")
        raise ConfigError(f"the schema imports {error.name}, which is not installed here: {hint}") from None
    except ValueError as error:
        raise ConfigError(f"not a Protobuf schema: {error}") from None


def _message(schema: Registered, name: str) -> tuple[ProtobufFile, Any]:
    """Return the descriptors of a schema, and the descriptor of the message `name`.

    Raises ConfigError if the schema is invalid, an import is not installed, or there is no such message.
    """
    file = _linked(schema)
    try:
        return file, file.message(name)
    except ValueError as error:
        raise ConfigError(str(error)) from None
