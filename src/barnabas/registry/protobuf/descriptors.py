"""Decodes FileDescriptorProtos from base64, links them with their imports, sorts and compares them."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from barnabas.registry.errors import InvalidSchemaError

#: .proto text has a blank or a semicolon at the least
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


def decode(schema: str, name: str) -> Any | None:
    """Decode a FileDescriptorProto from base64, and set its name. Return None if `schema` is .proto text.

    Raises:
        InvalidSchemaError: `schema` is neither.
    """
    if _BASE64.fullmatch(schema.strip()) is None:
        return None
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema))
    except (binascii.Error, DecodeError):
        raise InvalidSchemaError("it is neither .proto text nor a FileDescriptorProto in base64") from None
    file.name = name
    file.ClearField("source_code_info")
    # Said or not said, these are the same; protoc does not say them.
    if not file.package:
        file.ClearField("package")
    if file.syntax in ("", "proto2"):
        file.ClearField("syntax")
    return file


def encode(file: Any, name: str) -> str:
    """Return the FileDescriptorProto `file` in base64, with its name replaced by `name`."""
    copy = descriptor_pb2.FileDescriptorProto()
    copy.CopyFrom(file)
    copy.name = name
    return base64.b64encode(copy.SerializeToString()).decode()


def link(files: Mapping[str, Any]) -> Any:
    """Return a DescriptorPool with `files` and ``google/protobuf/descriptor.proto``.

    `files` has FileDescriptorProtos by file name. Each file comes after the files that it imports.

    Raises:
        InvalidSchemaError: the files contradict each other.
    """
    pool = DescriptorPool()
    own = descriptor_pb2.DESCRIPTOR
    if own.name not in files:
        pool.AddSerializedFile(own.serialized_pb)
    try:
        for file in files.values():
            pool.Add(file)
    except TypeError as error:
        raise InvalidSchemaError(" ".join(str(error).split())) from None
    return pool


def informed(file: Any, pool: Any) -> Any:
    """Return a copy of `file` whose custom options are decoded. The imports define these options.

    `pool` is a DescriptorPool with the imports, from `link`.
    """
    known = GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FileDescriptorProto"))
    return known.FromString(file.SerializeToString())


def same(name: str, files: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Whether the file `name` has equal descriptors, in the same order, in `files` and in `others`."""
    pool = link(files)
    one, other = (_tidy(linked.FindFileByName(name)) for linked in (pool, link(others)))
    return bool(informed(one, pool) == informed(other, pool))


def sort_imports(file: Any) -> None:
    """Sort the imports of `file` by name, in place."""
    public = {file.dependency[number] for number in file.public_dependency}
    weak = {file.dependency[number] for number in file.weak_dependency}
    file.dependency.sort()
    file.public_dependency[:] = [number for number, name in enumerate(file.dependency) if name in public]
    file.weak_dependency[:] = [number for number, name in enumerate(file.dependency) if name in weak]


def json_name(field: Any) -> str | None:
    """Return a field's JSON name; None if it is the default name."""
    first, *others = field.name.split("_")
    usual = first + "".join(part[:1].upper() + part[1:] for part in others)
    return None if field.extendee or field.json_name in ("", usual) else str(field.json_name)


def _tidy(linked: Any) -> Any:
    """Return a linked file's descriptor in a form to compare: full type names, no default JSON names."""
    file = descriptor_pb2.FileDescriptorProto()
    linked.CopyToProto(file)
    messages = list(file.message_type)
    fields = list(file.extension)
    while messages:
        message = messages.pop()
        messages += message.nested_type
        fields += [*message.field, *message.extension]
    for field in fields:
        if json_name(field) is None:
            field.ClearField("json_name")
    for service in file.service:
        for method in service.method:
            if not method.options.ByteSize():  # protoc has it so where "{}" ends the method
                method.ClearField("options")
    return file
