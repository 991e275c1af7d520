"""Registered Protobuf: from payloads to JSON, and back."""

from __future__ import annotations

from typing import Any

from barnabas.client.schemas.protobuf_json import fill
from barnabas.client.schemas.registered import Registered
from barnabas.kafka.records.message_indexes import read_message_indexes, write_message_indexes


class ProtobufSchema:
    """One schema with all that it imports.

    Args:
        message: the message that is written, by its full name or its name in the schema's package; by
            default the first one.

    Raises:
        ValueError, ModuleNotFoundError: as `ProtobufFile`.
    """

    def __init__(self, schema: Registered, message: str = "") -> None:
        from barnabas.client.schemas.protobuf_file import ProtobufFile  # needs the package protobuf

        self._file = ProtobufFile(schema)
        self._written = message

    @property
    def messages(self) -> list[str]:
        """The names of its messages, the first one first, nested ones behind their outer one's."""
        return self._file.messages

    def read(self, data: bytes) -> Any:
        """Return the JSON of a payload.

        Raises:
            ValueError, DecodeError: it is no message of this schema.
        """
        from google.protobuf.json_format import MessageToDict
        from google.protobuf.message_factory import GetMessageClass

        indexes, start = read_message_indexes(data, 0)
        message = GetMessageClass(self._file.at(indexes)).FromString(data[start:])
        return MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=self._file.pool)

    def write(self, value: Any, path: str) -> bytes:
        """Return the payload of a JSON value.

        Raises:
            UnfitError: the message has no such form.
            ValueError: the schema has no such message.
        """
        from google.protobuf.message_factory import GetMessageClass

        descriptor = self._file.message(self._written)
        indexes = self._file.indexes_of(descriptor)
        message = GetMessageClass(descriptor)()
        fill(message, value, path, self._file.pool)
        return write_message_indexes(indexes) + bytes(message.SerializeToString(deterministic=True))
