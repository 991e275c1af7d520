"""Registered Protobuf schemas: decodes payloads to JSON, and encodes JSON."""

from __future__ import annotations

from typing import Any

from barnabas.client.schemas.protobuf_json import fill
from barnabas.client.schemas.registered import Registered
from barnabas.kafka.records.message_indexes import read_message_indexes, write_message_indexes


class ProtobufSchema:
    """One schema, with all files that it imports.

    Args:
        message: message to write, by its full name or its name in the schema's package; by default the first
            one.

    Raises:
        ValueError: the schema is malformed, or an import is missing.
        ModuleNotFoundError: the package protobuf, or the package of an imported file, is not installed.
    """

    def __init__(self, schema: Registered, message: str = "") -> None:
        from barnabas.client.schemas.protobuf_file import ProtobufFile  # needs the package protobuf

        self._file = ProtobufFile(schema)
        self._written = message

    @property
    def messages(self) -> list[str]:
        """Return the names of the schema's messages, in their order in the schema.

        Nested messages follow the message that contains them.
        """
        return self._file.messages

    def read(self, data: bytes) -> Any:
        """Return a message as a JSON value.

        `data` has the indexes of the message in the schema (as in Confluent's wire format), then the message.
        The magic byte and the schema id are not included.

        Raises:
            ValueError, DecodeError: the bytes are not a message of this schema.
        """
        from google.protobuf.json_format import MessageToDict
        from google.protobuf.message_factory import GetMessageClass

        indexes, start = read_message_indexes(data, 0)
        message = GetMessageClass(self._file.at(indexes)).FromString(data[start:])
        return MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=self._file.pool)

    def write(self, value: Any, path: str) -> bytes:
        """Return a JSON value as the indexes of its message in the schema, then the message.

        The magic byte and the schema id are not included. `path` names the value in the text of an error.

        Raises:
            UnfitError: the value does not fit the message.
            ValueError: the schema does not have the message, or the message is one of an imported file.
        """
        from google.protobuf.message_factory import GetMessageClass

        descriptor = self._file.message(self._written)
        indexes = self._file.indexes_of(descriptor)
        message = GetMessageClass(descriptor)()
        fill(message, value, path, self._file.pool)
        return write_message_indexes(indexes) + bytes(message.SerializeToString(deterministic=True))
