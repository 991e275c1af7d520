"""Converts Protobuf messages to columns: a message is a struct with the names of its fields.

| Protobuf | column |
|---|---|
| int32, sint32, sfixed32 | int |
| int64, sint64, sfixed64, uint32, fixed32 | bigint |
| uint64, fixed64 | decimal(20,0) |
| float, double, bool, string, bytes | the same name, bytes as binary |
| an enum | string: the value's name, or its number if the schema has no name for it |
| repeated fields, maps | array, map |
| google.protobuf.Timestamp, Duration | timestamp, interval day to second; both cut to microseconds |
| a wrapper; Struct, Value, ListValue | the wrapped value; JSON text |
| a message without fields | true if it is set |

An unset field is NULL if Protobuf can tell that it is unset (oneofs, optional, messages). All other unset
fields have their default. A message that contains itself has no column type and is rejected.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from google.protobuf import json_format

from barnabas.base.errors import ConfigError
from barnabas.spark.payloads import RowUnfitError

_MICROSECONDS = 1_000_000
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_JSON = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))
_TIMES = {
    "google.protobuf.Timestamp": pa.timestamp("us", tz="UTC"),
    "google.protobuf.Duration": pa.duration("us"),
}
_SCALARS = {
    "double": pa.float64(),
    "float": pa.float32(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
    **dict.fromkeys(("int32", "sint32", "sfixed32"), pa.int32()),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint32", "fixed32"), pa.int64()),
    **dict.fromkeys(("uint64", "fixed64"), pa.decimal128(20, 0)),
}


@dataclass(frozen=True)
class _Kind:
    """The conversion of one kind of value between Protobuf and Arrow.

    `arrow` is the type of the column, and `raw` the type of the values that `write` receives. ``read(value)``
    converts a value or a message of Protobuf to Arrow. For a scalar, ``write(value)`` returns the value to
    set. For a message, ``write(message, value)`` sets the fields of `message`, and returns nothing.
    """

    arrow: pa.DataType
    raw: pa.DataType
    read: Callable[[Any], Any]
    write: Callable[..., Any]
    is_message: bool = False


@dataclass(frozen=True)
class _Field:
    name: str
    arrow: pa.DataType
    raw: pa.DataType
    read: Callable[[Any], Any]
    write: Callable[[Any, Any], None]


class MessageColumns:
    """Converts Protobuf messages of one type to rows, and back.

    `descriptor` is the descriptor of the message type. `path` has the full names of the message types that
    contain it.

    Raises ConfigError if a field has no column type.
    """

    def __init__(self, descriptor: Any, path: tuple[str, ...] = ()) -> None:
        if descriptor.full_name in path:
            raise ConfigError(f"{descriptor.full_name} contains itself, and no column can hold that")
        self._fields = [_field(each, (*path, descriptor.full_name)) for each in descriptor.fields]
        self._by_name = {each.name: each for each in self._fields}
        self.arrow = pa.struct([(each.name, each.arrow) for each in self._fields])
        self.raw = pa.struct([(each.name, each.raw) for each in self._fields])

    def read(self, message: Any) -> dict[str, Any]:
        """Convert a message to a row."""
        return {field.name: field.read(message) for field in self._fields}

    def write(self, message: Any, row: dict[str, Any]) -> None:
        """Fill `message` from a row, whose values have the types of `raw`.

        Raises RowUnfitError if a field does not accept its value.
        """
        for name, value in row.items():
            if value is not None:
                try:
                    self._by_name[name].write(message, value)
                except (TypeError, ValueError, KeyError, json_format.ParseError) as error:
                    raise RowUnfitError(f"field {name} does not take {value!r}: {error}") from None


def _field(field: Any, path: tuple[str, ...]) -> _Field:
    name = field.name
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _map(field, path)
    kind = _kind(field, path)
    if field.is_repeated:

        def read_all(message: Any) -> list[Any]:
            return [kind.read(value) for value in getattr(message, name)]

        def write_all(message: Any, values: list[Any]) -> None:
            target = getattr(message, name)
            for value in values:
                if value is None:
                    raise ValueError("its items cannot be NULL")
                if kind.is_message:
                    kind.write(target.add(), value)
                else:
                    target.append(kind.write(value))

        return _Field(name, pa.list_(kind.arrow), pa.list_(kind.raw), read_all, write_all)

    def read(message: Any) -> Any:
        return kind.read(getattr(message, name))

    def read_if_set(message: Any) -> Any:
        return kind.read(getattr(message, name)) if message.HasField(name) else None

    def write(message: Any, value: Any) -> None:
        if kind.is_message:
            inner = getattr(message, name)
            inner.SetInParent()
            kind.write(inner, value)
        else:
            setattr(message, name, kind.write(value))

    return _Field(name, kind.arrow, kind.raw, read_if_set if field.has_presence else read, write)


def _map(field: Any, path: tuple[str, ...]) -> _Field:
    name = field.name
    key, item = (_kind(field.message_type.fields_by_name[each], path) for each in ("key", "value"))

    def read(message: Any) -> list[tuple[Any, Any]]:
        return [(key.read(k), item.read(v)) for k, v in getattr(message, name).items()]

    def write(message: Any, values: dict[Any, Any]) -> None:
        target = getattr(message, name)
        for k, value in values.items():
            if value is None:
                raise ValueError("its values cannot be NULL")
            if item.is_message:
                item.write(target[key.write(k)], value)
            else:
                target[key.write(k)] = item.write(value)

    return _Field(name, pa.map_(key.arrow, item.arrow), pa.map_(key.raw, item.raw), read, write)


def _kind(field: Any, path: tuple[str, ...]) -> _Kind:
    if field.message_type is not None:
        return _message(field.message_type, path)
    if field.enum_type is not None:
        return _enum(field.enum_type)
    arrow = _SCALARS[_type_name(field)]
    if pa.types.is_decimal(arrow):
        return _Kind(arrow, arrow, _same, int)
    return _Kind(arrow, arrow, _same, _same)


def _message(descriptor: Any, path: tuple[str, ...]) -> _Kind:
    name = descriptor.full_name
    if name in _TIMES:
        return _Kind(_TIMES[name], pa.int64(), _read_time, _write_time, is_message=True)
    if name in _WRAPPERS:
        wrapped = _kind(descriptor.fields_by_name["value"], path)

        def wrap(message: Any, value: Any) -> None:
            message.value = wrapped.write(value)

        return _Kind(wrapped.arrow, wrapped.raw, lambda m: wrapped.read(m.value), wrap, is_message=True)
    if name in _JSON:
        return _Kind(pa.string(), pa.string(), _read_json, _write_json, is_message=True)
    if not descriptor.fields:
        return _Kind(pa.bool_(), pa.bool_(), lambda _: True, lambda *_: None, is_message=True)
    columns = MessageColumns(descriptor, path)
    return _Kind(columns.arrow, columns.raw, columns.read, columns.write, is_message=True)


def _enum(descriptor: Any) -> _Kind:
    names = {value.number: value.name for value in reversed(descriptor.values)}  # the first name of an alias
    numbers = {value.name: value.number for value in descriptor.values}

    def number(name: str) -> int:
        if name not in numbers and not name.removeprefix("-").isdecimal():
            raise ValueError(f"{descriptor.name} has no such value")
        return numbers[name] if name in numbers else int(name)

    return _Kind(pa.string(), pa.string(), lambda value: names.get(value, str(value)), number)


def _type_name(field: Any) -> str:
    for name in _SCALARS:
        if field.type == getattr(field, f"TYPE_{name.upper()}"):
            return str(name)
    raise ConfigError(f"field {field.full_name} is of a type that has no column")


def _same(value: Any) -> Any:
    return value


def _read_time(message: Any) -> int:
    return int(message.seconds * _MICROSECONDS + message.nanos // 1000)


def _write_time(message: Any, value: int) -> None:
    message.seconds, rest = divmod(value, _MICROSECONDS)
    if rest and message.seconds < 0 and message.DESCRIPTOR.name == "Duration":
        message.seconds, rest = message.seconds + 1, rest - _MICROSECONDS  # of one sign
    message.nanos = rest * 1000


def _read_json(message: Any) -> str:
    return str(json.dumps(json_format.MessageToDict(message), ensure_ascii=False))


def _write_json(message: Any, text: str) -> None:
    json_format.ParseDict(json.loads(text), message)
