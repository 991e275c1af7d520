"""Registered Protobuf: from a registry's serialized schemas to messages, and from a record to JSON.

The registry compiles; here its FileDescriptorProtos are only linked, so that no protoc is needed.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from barnabas.kafka.records.message_indexes import read_message_indexes

#: what a schema may refer to at most, and how deep, so that no registry holds the console up
MOST_FILES, DEEPEST = 200, 32
_MAIN = "schema.proto"
#: files that nobody registers; they come with the libraries
_KNOWN = re.compile(r"google/(protobuf|type)/[a-z_]+\.proto")
#: only options use it, and no record holds them
_OPTIONS_ONLY = "confluent/meta.proto"

#: JSON of one of the registry's addresses
Get = Callable[[str], Any]


class ProtobufSchema:
    """One schema with all that it imports."""

    def __init__(
        self, answer: Mapping[str, Any], get: Get, address: Callable[[Mapping[str, Any]], str]
    ) -> None:
        """
        Args:
            answer: the registry's, with the schema in the format ``serialized``.
            address: of a reference, in that format.

        Raises:
            ValueError, TypeError, KeyError: it is no such schema, or does not fit what it imports.
        """
        from google.protobuf.descriptor_pool import DescriptorPool

        self._pool: Any = DescriptorPool()
        files = dict(_files(answer, _MAIN, get, address, 0, set()))
        added: set[str] = set()
        self._add(_MAIN, files, added, 0)
        self._main: Any = self._pool.FindFileByName(_MAIN)

    def _add(self, name: str, files: Mapping[str, Any], added: set[str], depth: int) -> None:
        if name in added:
            return
        if depth > DEEPEST or len(added) > MOST_FILES:
            raise ValueError("it imports too much")
        added.add(name)
        file = files.get(name) or _known(name)
        for each in file.dependency:
            self._add(each, files, added, depth + 1)
        self._pool.AddSerializedFile(file.SerializeToString())

    def read(self, data: bytes) -> Any:
        """What a record holds behind the schema's id, as JSON has it.

        Raises:
            ValueError, DecodeError: it is no message of this schema.
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


def _files(
    answer: Mapping[str, Any],
    name: str,
    get: Get,
    address: Callable[[Mapping[str, Any]], str],
    depth: int,
    read: set[tuple[str, str]],
) -> Iterator[tuple[str, Any]]:
    """By the name it is imported by, the schema and all it refers to, each once; `read` has what was."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if depth > DEEPEST:
        raise ValueError("its references are too deep")
    file = FileDescriptorProto.FromString(base64.b64decode(answer["schema"], validate=True))
    file.name = name
    kept = [each for each in file.dependency if each != _OPTIONS_ONLY]
    # the positions of public and weak imports would be others then; they matter to those who compile only
    if len(kept) != len(file.dependency):
        del file.dependency[:], file.public_dependency[:], file.weak_dependency[:]
        file.dependency.extend(kept)
    yield name, file
    for reference in answer.get("references") or ():
        imported, path = reference["name"], address(reference)
        if (imported, path) in read:
            continue
        read.add((imported, path))
        if len(read) > MOST_FILES:
            raise ValueError("it has too many references")
        yield from _files(get(path), imported, get, address, depth + 1, read)


def _known(name: str) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if _KNOWN.fullmatch(name) is None:
        raise ValueError(f"it imports {name[:100]}, which it does not refer to")
    file = FileDescriptorProto()
    import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2").DESCRIPTOR.CopyToProto(file)
    return file
