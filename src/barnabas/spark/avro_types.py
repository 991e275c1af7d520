"""Converts Avro types to Arrow types, from which Spark derives the types of columns.

| Avro | column |
|---|---|
| boolean, int, float, double, string, date, decimal | the same name |
| long; bytes, fixed; enum | bigint; binary; string |
| record, array, map | struct, array, map |
| timestamp-millis, timestamp-micros | timestamp |
| local-timestamp-millis, local-timestamp-micros | timestamp_ntz |
| a union of null and one type | that type |
| a union of int and long; of float and double | bigint; double |

Other logical types have the column of their underlying type, as in the specification. Other unions, and
records that contain themselves, have no column type: `arrow_type` raises ConfigError.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from barnabas.base.errors import ConfigError

_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_WIDER = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}


def arrow_type(schema: Any, names: Mapping[str, Any], *, raw: bool = False) -> pa.DataType:
    """Return the Arrow type for a parsed Avro schema.

    Args:
        schema: the schema, as fastavro's parser returns it.
        names: the named types that `schema` refers to.
        raw: if true, dates and times get the integer types in which Avro stores them.

    Raises:
        ConfigError: no column can hold the type.
    """
    return _Types(names, raw).of(schema, ())


def without_logical_types(schema: Any) -> Any:
    """Return the schema without logical types, so that fastavro reads dates and times as plain numbers.

    Arrow converts these numbers to dates and times. The logical type `decimal` stays, because only fastavro
    can make a decimal from bytes.
    """
    if isinstance(schema, list):
        return [without_logical_types(item) for item in schema]
    if isinstance(schema, dict):
        return {
            key: value if key in ("default", "symbols", "aliases") else without_logical_types(value)
            for key, value in schema.items()
            if key != "logicalType" or value == "decimal"
        }
    return schema


class _Types:
    def __init__(self, names: Mapping[str, Any], raw: bool) -> None:
        self._names = names
        self._raw = raw

    def of(self, schema: Any, path: tuple[str, ...]) -> pa.DataType:
        if isinstance(schema, list):
            return self._union(schema, path)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return _PRIMITIVES[schema]
            return self.of(self._names[schema], path)
        kind = schema["type"]
        logical = schema.get("logicalType")
        if logical == "decimal":
            return pa.decimal128(schema["precision"], schema.get("scale", 0))
        if not self._raw and (kind, logical) in _LOGICAL:
            return _LOGICAL[kind, logical]
        if kind in ("record", "error"):
            return self._record(schema, path)
        if kind == "array":
            return pa.list_(self.of(schema["items"], path))
        if kind == "map":
            return pa.map_(pa.string(), self.of(schema["values"], path))
        return self.of(kind, path) if kind not in _PRIMITIVES else _PRIMITIVES[kind]

    def _record(self, schema: dict[str, Any], path: tuple[str, ...]) -> pa.DataType:
        if schema["name"] in path:
            raise ConfigError(f"{schema['name']} contains itself, and no column can hold that")
        inside = (*path, schema["name"])
        return pa.struct([(field["name"], self.of(field["type"], inside)) for field in schema["fields"]])

    def _union(self, branches: list[Any], path: tuple[str, ...]) -> pa.DataType:
        held = [branch for branch in branches if branch != "null"]
        if len(held) == 1:
            return self.of(held[0], path)
        if not held:
            return _PRIMITIVES["null"]
        plain = frozenset(branch for branch in held if isinstance(branch, str))
        if len(plain) == len(held) and plain in _WIDER:
            return _PRIMITIVES[_WIDER[plain]]
        shown = ", ".join(b if isinstance(b, str) else str(b.get("name", b["type"])) for b in held)
        where = f" in {path[-1]}" if path else ""
        raise ConfigError(f"a union of {shown}{where} has no column type: only null and one other type do")
