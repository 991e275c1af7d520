"""Prints a FileDescriptorProto as .proto text, which protoc compiles to the same descriptor.

Source: https://protobuf.dev/reference/protobuf/ (the specifications of proto2, proto3 and editions). Neither
Python's `protobuf` nor grpcio-tools can print a descriptor; C++ has `DebugString`. The text has no comments,
because a descriptor has none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from google.protobuf import text_format
from google.protobuf.unknown_fields import UnknownFieldSet

from barnabas.registry.errors import InvalidSchemaError
from barnabas.registry.protobuf.descriptors import informed, json_name

#: the number behind the last one that a field may have, and the last one of an enum
_FIELDS_END = 2**29
_ENUM_MAX = 2**31 - 1

_INDENT = "  "

#: words that protoc does not read as the name of a type. A type whose name begins with one of them is printed
#: with its full name after a dot
_WORDS = {
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64",
    "sfixed32", "sfixed64", "bool", "string", "bytes", "group", "map", "message", "enum", "oneof", "option",
    "optional", "required", "repeated", "reserved", "extend", "extensions", "stream", "export", "local",
}  # fmt: skip


def write(file: Any, pool: Any) -> str:
    """Return the .proto text of `file`, a FileDescriptorProto.

    `pool` is a DescriptorPool with `file`, all its imports, and ``google/protobuf/descriptor.proto``.

    Raises:
        InvalidSchemaError: `file` has an option that no import defines.
    """
    return "\n".join(_Writer(informed(file, pool), pool).lines()) + "\n"


class _Writer:
    def __init__(self, file: Any, pool: Any) -> None:
        self._file = file
        self._pool = pool
        self._proto = file.DESCRIPTOR.file
        enums = self._proto.message_types_by_name["FieldDescriptorProto"].enum_types_by_name
        self._types: dict[int, str] = {value.number: value.name for value in enums["Type"].values}
        self._labels: dict[int, str] = {value.number: value.name for value in enums["Label"].values}
        self._symbols = set(_symbols(pool.FindFileByName(file.name), set()))

    def lines(self) -> Iterator[str]:
        file = self._file
        if file.syntax == "editions":
            editions = self._proto.enum_types_by_name["Edition"].values_by_number
            yield f'edition = "{editions[file.edition].name.removeprefix("EDITION_")}";'
        else:
            yield f'syntax = "{file.syntax or "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        yield from self._imports()
        scope = file.package
        yield from _apart(self._option_lines(file.options, scope))
        for block in self._blocks(file.extension, file.message_type, scope):
            yield from _apart(block)
        for enum in file.enum_type:
            yield from _apart(self._enum(enum, scope))
        for service in file.service:
            yield from _apart(self._service(service, scope))

    def _imports(self) -> Iterator[str]:
        file = self._file
        kinds = dict.fromkeys(file.weak_dependency, "weak ") | dict.fromkeys(
            file.public_dependency, "public "
        )
        lines = [f"import {kinds.get(i, '')}{_quoted(name)};" for i, name in enumerate(file.dependency)]
        lines += [f"import option {_quoted(name)};" for name in getattr(file, "option_dependency", ())]
        return _apart(lines)

    # --- messages ---

    def _message(self, message: Any, scope: str) -> Iterator[str]:
        yield f"{self._visibility(message)}message {message.name} {{"
        yield from self._message_body(message, _join(scope, message.name))
        yield "}"

    def _message_body(self, message: Any, scope: str) -> Iterator[str]:
        def lines() -> Iterator[str]:
            yield from self._option_lines(message.options, scope)
            yield from self._reserved(message, _FIELDS_END, exclusive=1)
            for span in message.extension_range:
                options = self._option_list(span.options, scope)
                yield f"extensions {_span(span, _FIELDS_END, exclusive=1)}{options};"
            fields = (*message.field, *message.extension)
            for block in self._blocks(fields, message.nested_type, scope, message.oneof_decl):
                yield from block
            for enum in message.enum_type:
                yield from self._enum(enum, scope)

        return _indented(lines())

    def _blocks(
        self, fields: Sequence[Any], types: Iterable[Any], scope: str, oneofs: Sequence[Any] = ()
    ) -> Iterator[Iterable[str]]:
        """Yield the lines of the fields `fields` and of the nested messages `types`, in blocks.

        The fields keep their order, and the messages keep theirs. `scope` is the full name of the message or
        package that contains the fields and messages. `oneofs` has the oneofs of this message.

        protoc creates a nested message for a map field or a group when it reads the field. Clients find
        messages by their index. So the messages with a lower index come before a map field or a group. Other
        messages come after the fields.
        """
        waiting = {f".{_join(scope, nested.name)}": nested for nested in types}
        for run in _runs(fields):
            inline = {}
            for field in run:
                if field.type_name in waiting and self._is_inline(field, waiting[field.type_name]):
                    while (first := next(iter(waiting))) != field.type_name:
                        yield self._message(waiting.pop(first), scope)
                    inline[first] = waiting.pop(first)
            lines = (line for field in run for line in self._field_lines(field, inline, scope))
            if run[0].extendee:
                yield _braced(f"extend {self._name(run[0].extendee, scope)}", lines)
            elif _in_oneof(run[0]):
                oneof = oneofs[run[0].oneof_index]
                yield _braced(f"oneof {oneof.name}", (*self._option_lines(oneof.options, scope), *lines))
            else:
                yield lines
        for nested in waiting.values():
            yield self._message(nested, scope)

    def _is_inline(self, field: Any, nested: Any) -> bool:
        return bool(nested.options.map_entry) or self._types[field.type] == "TYPE_GROUP"

    def _field_lines(self, field: Any, inline: dict[str, Any], scope: str) -> Iterator[str]:
        nested = inline.get(field.type_name)
        ending = f"= {field.number}{self._field_options(field, scope)}"
        if nested is not None and nested.options.map_entry:
            key, value = (self._type(entry, scope) for entry in nested.field)
            yield f"map<{key}, {value}> {field.name} {ending};"
        elif nested is not None:
            yield f"{self._label(field)}group {nested.name} {ending} {{"
            yield from self._message_body(nested, _join(scope, nested.name))
            yield "}"
        else:
            yield f"{self._label(field)}{self._type(field, scope)} {field.name} {ending};"

    def _label(self, field: Any) -> str:
        label = self._labels[field.label].removeprefix("LABEL_").lower() + " "
        if label != "optional " or field.proto3_optional:
            return label
        return "" if self._file.syntax in ("proto3", "editions") or _in_oneof(field) else label

    def _type(self, field: Any, scope: str) -> str:
        if field.type_name:
            return self._name(field.type_name, scope)
        return self._types[field.type].removeprefix("TYPE_").lower()

    def _field_options(self, field: Any, scope: str) -> str:
        own = []
        if field.HasField("default_value"):
            own.append(f"default = {self._default(field)}")
        name = json_name(field)
        if name is not None:
            own.append(f"json_name = {_quoted(name)}")
        return self._option_list(field.options, scope, own)

    def _default(self, field: Any) -> str:
        kind = self._types[field.type]
        if kind == "TYPE_STRING":
            return _quoted(field.default_value)
        return f'"{field.default_value}"' if kind == "TYPE_BYTES" else str(field.default_value)

    # --- enums and services ---

    def _enum(self, enum: Any, scope: str) -> Iterator[str]:
        def lines() -> Iterator[str]:
            yield from self._option_lines(enum.options, scope)
            for value in enum.value:
                yield f"{value.name} = {value.number}{self._option_list(value.options, scope)};"
            yield from self._reserved(enum, _ENUM_MAX, exclusive=0)

        return _braced(f"{self._visibility(enum)}enum {enum.name}", lines())

    def _service(self, service: Any, scope: str) -> Iterator[str]:
        def lines() -> Iterator[str]:
            inside = _join(scope, service.name)
            yield from self._option_lines(service.options, inside)
            for method in service.method:
                taken = ("stream " * method.client_streaming) + self._name(method.input_type, inside)
                given = ("stream " * method.server_streaming) + self._name(method.output_type, inside)
                head = f"rpc {method.name} ({taken}) returns ({given})"
                options = list(self._option_lines(method.options, inside))
                yield from _braced(head, options) if options else (f"{head};",)

        return _braced(f"service {service.name}", lines())

    def _visibility(self, declared: Any) -> str:
        visibility = getattr(declared, "visibility", 0)
        return {1: "local ", 2: "export "}.get(visibility, "")

    def _reserved(self, declared: Any, end: int, *, exclusive: int) -> Iterator[str]:
        if declared.reserved_range:
            spans = (_span(span, end, exclusive=exclusive) for span in declared.reserved_range)
            yield f"reserved {', '.join(spans)};"
        if declared.reserved_name:
            names = declared.reserved_name
            plain = self._file.syntax == "editions"
            yield f"reserved {', '.join(names if plain else map(_quoted, names))};"

    # --- options ---

    def _option_lines(self, options: Any, scope: str) -> list[str]:
        return [f"option {option};" for option in self._options(options, scope)]

    def _option_list(self, options: Any, scope: str, own: Iterable[str] = ()) -> str:
        listed = [*own, *self._options(options, scope)]
        return f" [{', '.join(listed)}]" if listed else ""

    def _options(self, options: Any, scope: str) -> Iterator[str]:
        unknown = [field.field_number for field in UnknownFieldSet(options)]
        if unknown:
            raise InvalidSchemaError(
                f"option {unknown[0]} of {options.DESCRIPTOR.name} is defined by no import"
            )
        for field, value in options.ListFields():
            name = f"({self._name('.' + field.full_name, scope)})" if field.is_extension else field.name
            for one in value if field.is_repeated else (value,):
                yield f"{name} = {self._value(field, one)}"

    def _value(self, field: Any, value: Any) -> str:
        if field.message_type is not None:
            inside = text_format.MessageToString(
                value, as_utf8=True, as_one_line=True, descriptor_pool=self._pool
            )
            return f"{{ {inside} }}" if inside else "{}"
        if field.enum_type is not None:
            named = field.enum_type.values_by_number.get(value)
            if named is None:
                raise InvalidSchemaError(f"{value} is not a value of {field.enum_type.full_name}")
            return str(named.name)
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, bytes):
            return '"' + "".join(f"\\{byte:03o}" for byte in value) + '"'
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        return _quoted(value) if isinstance(value, str) else repr(value)

    # --- names ---

    def _name(self, full: str, scope: str) -> str:
        """Return the shortest name that means `full` within `scope`. `full` begins with a dot."""
        full = full[1:]
        package = self._file.package
        short = full.removeprefix(f"{package}.") if package else full
        for name in (short, full):
            # The innermost scope that knows the first part of a name is where the name is looked for.
            first, outer = name.partition(".")[0], scope
            while outer and _join(outer, first) not in self._symbols:
                outer = outer.rpartition(".")[0]
            if _join(outer, name) == full and first not in _WORDS:
                return name
        return f".{full}"


def _symbols(file: Any, seen: set[str]) -> Iterator[str]:
    """Yield the full names that the file and its imports define, including the names of packages.

    `seen` has the names of the files that were visited. These files are left out. The names of `file` and of
    its imports are added to `seen`.
    """
    if file.name in seen:
        return
    seen.add(file.name)
    parts = file.package.split(".")
    yield from (".".join(parts[: i + 1]) for i in range(len(parts)))
    top = (file.enum_types_by_name, file.extensions_by_name, file.services_by_name)
    yield from (defined.full_name for group in top for defined in group.values())
    for enum in file.enum_types_by_name.values():
        yield from (_join(file.package, value.name) for value in enum.values)
    messages = list(file.message_types_by_name.values())
    while messages:
        message = messages.pop()
        yield message.full_name
        inside = (message.fields, message.oneofs, message.enum_types, message.extensions)
        yield from (_join(message.full_name, defined.name) for group in inside for defined in group)
        for enum in message.enum_types:
            yield from (_join(message.full_name, value.name) for value in enum.values)
        messages += message.nested_types
    for imported in file.dependencies:
        yield from _symbols(imported, seen)


def _runs(fields: Sequence[Any]) -> Iterator[list[Any]]:
    """Divide `fields` into blocks: the fields of one oneof, extensions of one message, or a single field."""

    def oneof_or_number(numbered: tuple[int, Any]) -> object:
        number, field = numbered
        return field.extendee or (field.oneof_index if _in_oneof(field) else f"alone {number}")

    return ([field for _, field in run] for _, run in groupby(enumerate(fields), oneof_or_number))


def _in_oneof(field: Any) -> bool:
    return field.HasField("oneof_index") and not field.proto3_optional


def _span(span: Any, end: int, *, exclusive: int) -> str:
    last = span.end - exclusive
    if span.start == last:
        return str(last)
    return f"{span.start} to {'max' if span.end >= end else last}"


def _quoted(text: str | bytes) -> str:
    if isinstance(text, bytes):  # what protobuf makes of a string that it cannot decode
        raise InvalidSchemaError(f"the string {text!r} is not UTF-8")
    escaped = (
        f"\\{ord(character):03o}" if ord(character) < 32 or ord(character) == 127 else character
        for character in text.replace("\\", "\\\\").replace('"', '\\"')
    )
    return '"' + "".join(escaped) + '"'


def _join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def _braced(head: str, lines: Iterable[str]) -> Iterator[str]:
    yield f"{head} {{"
    yield from _indented(lines)
    yield "}"


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (_INDENT + line for line in lines)


def _apart(lines: Iterable[str]) -> Iterator[str]:
    """Yield an empty line, then `lines`. Yield nothing if `lines` is empty."""
    lines = list(lines)
    if lines:
        yield ""
        yield from lines
