"""Converts the types of JSON Schema to types of columns.

| JSON Schema | column |
|---|---|
| integer, number, boolean, string | bigint, double, boolean, string |
| an object with properties | struct |
| an object with only additionalProperties of one type | map |
| an array with items of one type | array |
| a union of null and one other schema | the column of the other schema |
| all else: other unions, arrays of several types, recursive schemas | string: the value's JSON |

Every property, and every type that allows null, is nullable. Formats such as date-time have no effect, as in
JSON Schema: cast such strings.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from referencing.exceptions import Unresolvable

from barnabas.base.errors import ConfigError

_PLAIN = {"string": pa.string(), "number": pa.float64(), "boolean": pa.bool_(), "integer": pa.int64()}


@dataclass(frozen=True)
class JsonColumn:
    """A column's Arrow type. `read` converts JSON values to it, and `write` converts values back to JSON."""

    arrow: pa.DataType
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


def json_column(schema: Any, resolver: Any, inside: tuple[int, ...] = ()) -> JsonColumn:
    """Return the column for values of a JSON Schema.

    Args:
        schema: an object or a boolean, as in JSON Schema.
        resolver: a resolver of the package `referencing`, which finds the targets of ``$ref``.
        inside: Python ids of the ``$ref`` targets that contain this schema. A ``$ref`` to one of them is
            recursive; its column has JSON text.

    Raises:
        ConfigError: a ``$ref`` has no target.
    """
    while isinstance(schema, dict) and "$ref" in schema:
        try:
            resolved = resolver.lookup(schema["$ref"])
        except (Unresolvable, ValueError) as error:
            raise ConfigError(f"$ref {schema['$ref']} leads nowhere: {error}") from None
        schema, resolver = resolved.contents, resolved.resolver
        if id(schema) in inside:
            return _TEXT
        inside = (*inside, id(schema))
    if not isinstance(schema, dict):
        return _TEXT
    for union in ("oneOf", "anyOf", "allOf"):
        if union in schema and "properties" not in schema:
            held = [each for each in schema[union] if not _is_null(each)]
            return json_column(held[0], resolver, inside) if len(held) == 1 else _TEXT
    kind = _kind(schema)
    if kind == "object":
        return _object(schema, resolver, inside)
    items = schema.get("items")
    if kind == "array" and isinstance(items, dict) and "prefixItems" not in schema:
        return _array(json_column(items, resolver, inside))
    if kind == "integer":
        return JsonColumn(_PLAIN[kind], _optional(int), _same)  # 1.0 is an integer, too
    if kind == "number":
        return JsonColumn(_PLAIN[kind], _optional(float), _same)
    return JsonColumn(_PLAIN[kind], _same, _same) if kind in _PLAIN else _TEXT


def _kind(schema: dict[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        held = [each for each in kind if each != "null"]
        kind = held[0] if len(held) == 1 else None
    if kind is None and "properties" in schema:
        return "object"
    if kind is None and all(isinstance(each, str) for each in schema.get("enum", [0])):
        return "string"
    return str(kind)


def _object(schema: dict[str, Any], resolver: Any, inside: tuple[int, ...]) -> JsonColumn:
    properties = schema.get("properties")
    if not properties:
        more = schema.get("additionalProperties")
        if not isinstance(more, dict) or "patternProperties" in schema:
            return _TEXT
        return _map(json_column(more, resolver, inside))
    columns = {name: json_column(each, resolver, inside) for name, each in properties.items()}
    required = set(schema.get("required") or ())

    def read(value: Any) -> Any:
        return value and {name: column.read(value.get(name)) for name, column in columns.items()}

    def write(value: Any) -> Any:
        if value is None:
            return None
        written = {name: columns[name].write(each) for name, each in value.items()}
        # A property that may be missing is, where it is NULL: not all that may be missing may be null.
        return {name: each for name, each in written.items() if each is not None or name in required}

    arrow = pa.struct([(name, column.arrow) for name, column in columns.items()])
    return JsonColumn(arrow, read, write)


def _array(item: JsonColumn) -> JsonColumn:
    def each(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return _optional(lambda values: [convert(value) for value in values])

    return JsonColumn(pa.list_(item.arrow), each(item.read), each(item.write))


def _map(item: JsonColumn) -> JsonColumn:
    def read(value: dict[str, Any]) -> list[tuple[str, Any]]:
        return [(name, item.read(each)) for name, each in value.items()]

    def write(value: dict[str, Any]) -> dict[str, Any]:
        return {name: item.write(each) for name, each in value.items()}

    return JsonColumn(pa.map_(pa.string(), item.arrow), _optional(read), _optional(write))


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "null"


def _optional(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value


_TEXT = JsonColumn(
    pa.string(), _optional(lambda value: json.dumps(value, ensure_ascii=False)), _optional(json.loads)
)
