"""Registered Protobuf schemas as descriptors, from what registries give in the format ``serialized``."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from barnabas.base.errors import ConfigError
from barnabas.base.installation import pip_install
from barnabas.spark.registry_client import RegisteredSchema

_MAIN = "<schema>"
#: prefixes of well-known files, which Python packages have and registries do not
_KNOWN = ("google/protobuf/", "google/type/")
_BYTES = FieldDescriptorProto.TYPE_BYTES
_DECIMAL = {
    "value": _BYTES,
    "precision": FieldDescriptorProto.TYPE_UINT32,
    "scale": FieldDescriptorProto.TYPE_INT32,
}
_VARIANT = {"metadata": _BYTES, "value": _BYTES}


class ProtobufFile:
    """A schema, linked with what it imports.

    Raises:
        ConfigError: it is no FileDescriptorProto, or an import is missing.
    """

    def __init__(self, schema: RegisteredSchema) -> None:
        pool = DescriptorPool()
        added: set[str] = set()
        for name, text in (*schema.references, (_MAIN, schema.text)):
            self._proto = _decode(text, name)
            for wanted in self._proto.dependency:
                _add_known(pool, wanted, added)
            try:
                pool.Add(self._proto)
            except TypeError as error:
                shown = "" if name == _MAIN else f"{name}: "
                raise ConfigError(f"not a Protobuf schema: {shown}{' '.join(str(error).split())}") from None
            added.add(name)
        self._pool = pool

    def message(self, name: str = "") -> Any:
        """The descriptor of a message by its full name, or its name in this package; else of the first one.

        Raises:
            ConfigError: there is no such message.
        """
        if not name:
            return self.at((0,))
        for each in (name, f"{self._proto.package}.{name}"):
            try:
                return self._pool.FindMessageTypeByName(each)
            except KeyError:
                pass
        there = ", ".join(message.name for message in self._proto.message_type)
        raise ConfigError(f"there is no message {name} in the schema; its first level has {there or 'none'}")

    def at(self, indexes: Sequence[int]) -> Any:
        """The message at these indexes, of the first level and then within. Raises ConfigError."""
        messages, names = self._proto.message_type, [self._proto.package] if self._proto.package else []
        for index in indexes:
            if not 0 <= index < len(messages):
                raise ConfigError(f"the schema has no message at {'.'.join(map(str, indexes))}")
            names.append(messages[index].name)
            messages = messages[index].nested_type
        return self._pool.FindMessageTypeByName(".".join(names))

    def indexes_of(self, message: Any) -> tuple[int, ...]:
        """The inverse of `at`. Raises ConfigError when the message is of an import."""
        if message.file.name != _MAIN:
            raise ConfigError(f"message {message.full_name} is of an import, and cannot be written by itself")
        found: list[int] = []
        while message is not None:
            holder = message.containing_type
            siblings = holder.nested_types if holder else message.file.message_types_by_name.values()
            names = [each.name for each in siblings]
            found.insert(0, names.index(message.name))
            message = holder
        return tuple(found)


def _decode(text: str, name: str) -> FileDescriptorProto:
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        raise ConfigError(
            "not a serialized Protobuf schema: the registry does not know the format serialized"
        ) from None
    file.name = name
    return file


def _add_known(pool: DescriptorPool, name: str, added: set[str]) -> None:
    """Add a well-known file, if `name` is one, with its imports."""
    if name in added:
        return
    if name.startswith("confluent/"):
        pool.Add(_confluent(name))
    elif name.startswith(_KNOWN):
        try:
            known = import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2").DESCRIPTOR
        except ModuleNotFoundError:
            cure = pip_install("protobuf")
            raise ConfigError(f"the schema imports {name}, which is not installed here: {cure}") from None
        for each in known.dependencies:
            _add_known(pool, each.name, added)
        pool.AddSerializedFile(known.serialized_pb)
    else:
        return
    added.add(name)


def _confluent(name: str) -> FileDescriptorProto:
    """One of Confluent's files; ``meta.proto`` has only options, which do not affect columns."""
    messages = {"decimal": {"Decimal": _DECIMAL}, "variant": {"Variant": _VARIANT}}
    found = messages.get(name.rpartition("/")[2].removesuffix(".proto"), {})
    file = FileDescriptorProto(name=name, package="confluent.type" if found else "confluent", syntax="proto3")
    for message, fields in found.items():
        numbered = [
            FieldDescriptorProto(name=each, number=number, type=kind, label=1)
            for number, (each, kind) in enumerate(fields.items(), 1)
        ]
        file.message_type.append(DescriptorProto(name=message, field=numbered))
    return file
