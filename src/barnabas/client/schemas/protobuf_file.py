"""Registered Protobuf schemas, linked with the files that they import.

The registry compiles schemas. This module only links its FileDescriptorProtos, so it needs no protoc.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from barnabas.base.text import shown
from barnabas.client.schemas.registered import DEEPEST, MAX_REFERENCES, Registered

_MAIN = "<schema>"
#: names of files that Python packages contain
_WELL_KNOWN = re.compile(r"google/(protobuf|type)/[a-z_]+\.proto")
_BYTES = FieldDescriptorProto.TYPE_BYTES
#: Confluent's files: the message of each, and its fields in the order of their numbers
_CONFLUENT: dict[str, tuple[str, dict[str, Any]]] = {
    "confluent/meta.proto": ("", {}),  # options only, which no record has
    "confluent/type/decimal.proto": (
        "Decimal",
        {
            "value": _BYTES,
            "precision": FieldDescriptorProto.TYPE_UINT32,
            "scale": FieldDescriptorProto.TYPE_INT32,
        },
    ),
    "confluent/type/variant.proto": ("Variant", {"metadata": _BYTES, "value": _BYTES}),
}


class ProtobufFile:
    """The Protobuf descriptors of the registered schema `schema`, and of the files that it imports.

    Raises:
        ValueError: the bytes are not a FileDescriptorProto, contradict an import, or an import is missing.
        ModuleNotFoundError: the package of a well-known file is not installed.
    """

    def __init__(self, schema: Registered) -> None:
        self._pool: Any = DescriptorPool()
        self._files = {
            name: _decoded(name, text) for name, text in (*schema.references, (_MAIN, schema.text))
        }
        self._added: set[str] = set()
        self._add(_MAIN, 0)
        self._main: Any = self._pool.FindFileByName(_MAIN)

    @property
    def pool(self) -> Any:
        """Return the pool with the descriptors of the schema and of its imports."""
        return self._pool

    @property
    def messages(self) -> list[str]:
        """Return the full names of the schema's messages. A nested message follows its container."""
        return list(_names(self._main.message_types_by_name.values()))

    def message(self, name: str = "") -> Any:
        """Return the descriptor of a message, by its full name or its name in the package.

        If `name` is empty, return the first message of the schema.

        Raises:
            ValueError: the schema does not have the message.
        """
        if not name:
            return self.at((0,))
        for each in (name, f"{self._main.package}.{name}"):
            try:
                return self._pool.FindMessageTypeByName(each)
            except KeyError:
                pass
        there = ", ".join(self.messages[:20])
        raise ValueError(f"there is no message {shown(name, 100)} in it; its messages are {there or 'none'}")

    def at(self, indexes: Sequence[int]) -> Any:
        """Return the descriptor of the message at these indexes, as in Confluent's wire format.

        The first index selects a message of the file. Each further index selects a message that is nested in
        the message before it.

        Raises ValueError if the schema has no message there.
        """
        found: Any = None
        messages = list(self._main.message_types_by_name.values())
        for index in indexes:
            if not 0 <= index < len(messages):
                raise ValueError(f"the schema has no message at {'.'.join(map(str, indexes))}")
            found = messages[index]
            messages = found.nested_types
        return found

    def indexes_of(self, message: Any) -> tuple[int, ...]:
        """Return the indexes of a message, the outermost first.

        Raises ValueError if an imported file defines the message.
        """
        if message.file.name != _MAIN:
            raise ValueError(f"message {message.full_name} is of an import, and cannot be written by itself")
        found: list[int] = []
        while message is not None:
            holder = message.containing_type
            siblings = holder.nested_types if holder else message.file.message_types_by_name.values()
            found.insert(0, [each.name for each in siblings].index(message.name))
            message = holder
        return tuple(found)

    def _add(self, name: str, depth: int) -> None:
        """Add a file to the pool, after the files that it imports.

        `depth` is the number of imports that lead to the file. Raises ValueError if the file is not known or
        not valid, or if there are too many imports.
        """
        if name in self._added:
            return
        if depth > DEEPEST or len(self._added) > MAX_REFERENCES:
            raise ValueError("it imports too much")
        self._added.add(name)
        file = self._files.get(name) or _known(name)
        for each in file.dependency:
            self._add(each, depth + 1)
        try:
            self._pool.AddSerializedFile(file.SerializeToString())
        except TypeError as error:
            about = "" if name == _MAIN else f"{shown(name, 100)}: "
            raise ValueError(f"{about}{' '.join(str(error).split())}") from None


def _names(messages: Any) -> Iterator[str]:
    for each in messages:
        if not each.GetOptions().map_entry:
            yield each.full_name
            yield from _names(each.nested_types)


def _decoded(name: str, text: str) -> FileDescriptorProto:
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, DecodeError):
        raise ValueError("the registry does not know the format serialized") from None
    file.name = name
    return file


def _known(name: str) -> FileDescriptorProto:
    """Return the descriptor of an imported file that libraries contain and registries do not store.

    Raises:
        ValueError: no library contains the file.
        ModuleNotFoundError: the package with the file is not installed.
    """
    if name in _CONFLUENT:
        return _confluent(name)
    if _WELL_KNOWN.fullmatch(name) is None:
        raise ValueError(f"it imports {shown(name, 100)}, for which it has no reference")
    file = FileDescriptorProto()
    import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2").DESCRIPTOR.CopyToProto(file)
    return file


def _confluent(name: str) -> FileDescriptorProto:
    message, fields = _CONFLUENT[name]
    package = name.rpartition("/")[0].replace("/", ".")
    file = FileDescriptorProto(name=name, package=package, syntax="proto3")
    if message:
        numbered = [
            FieldDescriptorProto(name=each, number=number, type=kind, label=1)
            for number, (each, kind) in enumerate(fields.items(), 1)
        ]
        file.message_type.append(DescriptorProto(name=message, field=numbered))
    return file
