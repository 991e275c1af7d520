"""Checks whether the messages of one file can read the data of another file, by Confluent's rules.

Source:
https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/serdes-protobuf.html
and, for types with the same wire format, https://protobuf.dev/programming-guides/proto3/#updating. Messages
are matched by their names within the package, and fields by their numbers. Changes of enums and services are
always compatible.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Any

from barnabas.registry.incompatibility import Incompatibility
from barnabas.registry.limits import Steps

#: scalars with the same encoding; enums are encoded as numbers
_ALIKE = (
    ("int32", "int64", "uint32", "uint64", "bool", "enum"),
    ("sint32", "sint64"),
    ("string", "bytes"),
    ("fixed32", "sfixed32"),
    ("fixed64", "sfixed64"),
    ("float",),
    ("double",),
)
_GROUP_OF = {name: group for group in _ALIKE for name in group}
_TEXT = _GROUP_OF["string"]


def incompatibilities(reader: Any, writer: Any) -> list[Incompatibility]:
    """Return the reasons why `reader` cannot read messages of `writer`; empty if it can.

    Both are FileDescriptors. Raises TooLargeError if the comparison takes too many steps.
    """
    found = []
    if reader.package != writer.package:
        words = f"package {writer.package or '(none)'} became {reader.package or '(none)'}"
        found.append(Incompatibility("PACKAGE_CHANGED", "/", words))
    check = _Check(reader.name, writer.name)
    return found + check.types(reader.message_types_by_name, writer.message_types_by_name, "")


class _Check:
    def __init__(self, reader_file: str, writer_file: str) -> None:
        self._files = (reader_file, writer_file)
        # A message that is being compared counts as compatible, so that recursive messages end.
        self._broken: dict[tuple[str, str], bool] = {}
        self._steps = Steps()

    def types(self, reader: Any, writer: Any, path: str) -> list[Incompatibility]:
        found = []
        for name, written in writer.items():
            if _is_map_entry(written):
                continue
            if name not in reader:
                found.append(Incompatibility("MESSAGE_REMOVED", f"{path}/{name}", f"message {name} is gone"))
            else:
                found += self.message(reader[name], written, f"{path}/{name}")
        return found

    def message(self, reader: Any, writer: Any, path: str) -> list[Incompatibility]:
        """Return the incompatibilities of two messages, and store in `_broken` whether there are any.

        The result is empty for two messages that were compared before, so that each incompatibility is
        reported once.
        """
        pair = (reader.full_name, writer.full_name)
        if pair in self._broken:
            return []
        self._broken[pair] = False
        found = [
            *self._oneofs(reader, writer, path),
            *self._fields(reader, writer, path),
            *self.types(reader.nested_types_by_name, writer.nested_types_by_name, path),
        ]
        self._broken[pair] = bool(found)
        return found

    def _fields(self, reader: Any, writer: Any, path: str) -> list[Incompatibility]:
        found = []
        read, written = reader.fields_by_number, writer.fields_by_number
        for number in sorted({*read, *written}):
            self._steps.spend()
            where = f"{path}/{number}"
            if number in read and number in written:
                found += self._field(read[number], written[number], where)
            elif number in read and read[number].is_required:
                words = f"required field {read[number].name} is new"
                found.append(Incompatibility("REQUIRED_FIELD_ADDED", where, words))
            elif number in written and written[number].is_required:
                words = f"required field {written[number].name} is gone"
                found.append(Incompatibility("REQUIRED_FIELD_REMOVED", where, words))
            elif number in written and _survives(written[number], reader):
                oneof = _oneof(written[number])
                words = f"field {written[number].name} of oneof {oneof} is gone"
                found.append(Incompatibility("ONEOF_FIELD_REMOVED", f"{path}/{oneof}/{number}", words))
        return found

    def _oneofs(self, reader: Any, writer: Any, path: str) -> list[Incompatibility]:
        """Return the incompatibilities of the oneofs in the message `reader`.

        Only one field of a oneof can be set. So fields that can be set together in the message `writer` must
        not be in one oneof of `reader`. `path` is the place of the message, for the incompatibilities.
        """
        found = []
        for oneof in reader.oneofs:
            before = [writer.fields_by_number.get(field.number) for field in oneof.fields]
            moved = [field.name for field in before if field is not None and _oneof(field) is None]
            joined = {_oneof(field) for field in before if field is not None} - {None}
            where = f"{path}/{oneof.name}"
            if len(moved) > 1:
                words = f"fields {', '.join(moved)} were not in oneof {oneof.name}"
                found.append(Incompatibility("MULTIPLE_FIELDS_MOVED_TO_ONEOF", where, words))
            elif len(moved) + len(joined) > 1:
                words = f"oneof {oneof.name} joins what were {', '.join([*moved, *sorted(map(str, joined))])}"
                found.append(Incompatibility("FIELD_MOVED_TO_EXISTING_ONEOF", where, words))
        return found

    def _field(self, reader: Any, writer: Any, path: str) -> list[Incompatibility]:
        kinds = _kind(reader), _kind(writer)
        words = f"{_called(writer)} became {_called(reader)}"
        if kinds[0] != kinds[1]:
            return [Incompatibility("FIELD_KIND_CHANGED", path, words)]
        if kinds[0] == "map":
            entries = reader.message_type.fields_by_number, writer.message_type.fields_by_number
            return [found for n in (1, 2) for found in self._field(entries[0][n], entries[1][n], path)]
        if kinds[0] != "scalar":
            return self._message_type(reader.message_type, writer.message_type, path)
        if _scalars(reader) != _scalars(writer):
            return [Incompatibility("FIELD_SCALAR_KIND_CHANGED", path, words)]
        labels = [(field.is_repeated, field.is_required) for field in (reader, writer)]
        if labels[0] != labels[1] and _scalars(reader) != _TEXT:
            return [Incompatibility("FIELD_NUMERIC_LABEL_CHANGED", path, words)]
        return []

    def _message_type(self, reader: Any, writer: Any, path: str) -> list[Incompatibility]:
        name, was = _local_name(reader), _local_name(writer)
        changed = Incompatibility("FIELD_NAMED_TYPE_CHANGED", path, f"message {was} became {name}")
        if name != was:
            return [changed]
        if (reader.file.name, writer.file.name) == self._files:
            return []  # reported for the message itself
        found = self.message(reader, writer, f"/{name.replace('.', '/')}")
        if self._broken[reader.full_name, writer.full_name]:
            words = f"message {name}, which is imported, cannot be read any more"
            found.append(Incompatibility("FIELD_NAMED_TYPE_CHANGED", path, words))
        return found


def _kind(field: Any) -> str:
    if field.message_type is None:
        return "scalar"
    if _is_map_entry(field.message_type):
        return "map"
    return "group" if field.type == field.TYPE_GROUP else "message"


def _scalars(field: Any) -> tuple[str, ...]:
    return _GROUP_OF[_type_name(field)]


def _type_name(field: Any) -> str:
    cls: Any = type(field)
    return _type_names(cls)[field.type]


@lru_cache
def _type_names(cls: Hashable) -> dict[int, str]:
    names = {value: name for name, value in vars(cls).items() if name.startswith("TYPE_")}
    return {value: name.removeprefix("TYPE_").lower() for value, name in names.items()}


def _called(field: Any) -> str:
    named = field.message_type or field.enum_type
    label = "repeated " * field.is_repeated + "required " * field.is_required
    if _kind(field) == "map":
        return f"map {field.name}"
    return f"{label}{_local_name(named) if named else _type_name(field)} {field.name}"


def _oneof(field: Any) -> str | None:
    """Return the name of a field's oneof; None without one.

    The synthetic oneof of ``optional`` in proto3 does not count.
    """
    oneof = field.containing_oneof
    if oneof is None or (len(oneof.fields) == 1 and oneof.name.lstrip("X") == f"_{field.name}"):
        return None
    return str(oneof.name)


def _survives(field: Any, reader: Any) -> bool:
    """Whether the message `reader` still has the oneof of a field, or one of its other fields elsewhere."""
    oneof = _oneof(field)
    if oneof is None:
        return False
    others = (other.number in reader.fields_by_number for other in field.containing_oneof.fields)
    return oneof in reader.oneofs_by_name or any(others)


def _is_map_entry(message: Any) -> bool:
    return bool(message.GetOptions().map_entry)


def _local_name(defined: Any) -> str:
    return str(defined.full_name.removeprefix(f"{defined.file.package}."))
