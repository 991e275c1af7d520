"""Registered Protobuf: from payloads to JSON, and back.

The registry compiles; here its FileDescriptorProtos are only linked, so that no protoc is needed.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from barnabas.base.text import shown
from barnabas.client.schemas.protobuf_json import fill
from barnabas.client.schemas.registered import DEEPEST, MOST_REFERENCES, Registered
from barnabas.kafka.records.message_indexes import read_message_indexes, write_message_indexes

_MAIN = "schema.proto"
#: files that clients never register; they come with the libraries
_KNOWN = re.compile(r"google/(protobuf|type)/[a-z_]+\.proto")
#: only options use it, and no record holds them
_OPTIONS_ONLY = "confluent/meta.proto"


class ProtobufSchema:
    """One schema with all that it imports.

    Args:
        message: the message that is written, by its full name or its name in the schema's package; by
            default the first one.

    Raises:
        ValueError, TypeError, KeyError: it is no such schema, or does not fit what it imports.
    """

    def __init__(self, schema: Registered, message: str = "") -> None:
        from google.protobuf.descriptor_pool import DescriptorPool

        self._pool: Any = DescriptorPool()
        files = {name: _file(name, text) for name, text in (*schema.references, (_MAIN, schema.text))}
        self._add(_MAIN, files, set(), 0)
        self._main: Any = self._pool.FindFileByName(_MAIN)
        self._written = message

    def _add(self, name: str, files: Mapping[str, Any], added: set[str], depth: int) -> None:
        if name in added:
            return
        if depth > DEEPEST or len(added) > MOST_REFERENCES:
            raise ValueError("it imports too much")
        added.add(name)
        file = files.get(name) or _known(name)
        for each in file.dependency:
            self._add(each, files, added, depth + 1)
        self._pool.AddSerializedFile(file.SerializeToString())

    @property
    def messages(self) -> list[str]:
        """The names of its messages, the first one first, nested ones behind their outer one's."""
        return list(self._messages())

    def read(self, data: bytes) -> Any:
        """Return the JSON of a payload.

        Raises:
            ValueError, LookupError, DecodeError: it is no message of this schema.
        """
        from google.protobuf.json_format import MessageToDict
        from google.protobuf.message_factory import GetMessageClass

        indexes, start = read_message_indexes(data, 0)
        first, *deeper = indexes
        found = list(self._main.message_types_by_name.values())[first]
        for index in deeper:
            found = found.nested_types[index]
        message = GetMessageClass(found).FromString(data[start:])
        return MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=self._pool)

    def write(self, value: Any, path: str) -> bytes:
        """Return the payload of a JSON value.

        Raises:
            UnfitError: the message has no such form.
            ValueError: the schema has no such message.
        """
        from google.protobuf.message_factory import GetMessageClass

        indexes, descriptor = self._message()
        message = GetMessageClass(descriptor)()
        fill(message, value, path, self._pool)
        return write_message_indexes(indexes) + bytes(message.SerializeToString(deterministic=True))

    def _message(self) -> tuple[tuple[int, ...], Any]:
        messages = self._messages()
        for name in (self._written, f"{self._main.package}.{self._written}") if self._written else messages:
            if name in messages:
                return messages[name]
        there = ", ".join(list(messages)[:20])
        raise ValueError(
            f"there is no message {shown(self._written, 100)} in it; its messages are {there or 'none'}"
        )

    def _messages(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Return the indexes and the descriptor of each message, by its full name."""
        found: dict[str, tuple[tuple[int, ...], Any]] = {}
        _collect(self._main.message_types_by_name.values(), (), found)
        return found


def _collect(
    messages: Iterable[Any], outer: tuple[int, ...], found: dict[str, tuple[tuple[int, ...], Any]]
) -> None:
    for index, each in enumerate(messages):
        if not each.GetOptions().map_entry:
            found[each.full_name] = (*outer, index), each
            _collect(each.nested_types, (*outer, index), found)


def _file(name: str, text: str) -> Any:
    """Return a registered file, by the name it is imported by."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    file.name = name
    kept = [each for each in file.dependency if each != _OPTIONS_ONLY]
    # the positions of public and weak imports would be others then; they matter to those who compile only
    if len(kept) != len(file.dependency):
        del file.dependency[:], file.public_dependency[:], file.weak_dependency[:]
        file.dependency.extend(kept)
    return file


def _known(name: str) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if _KNOWN.fullmatch(name) is None:
        raise ValueError(f"it imports {name[:100]}, which it does not refer to")
    file = FileDescriptorProto()
    import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2").DESCRIPTOR.CopyToProto(file)
    return file
