"""Avro's binary encoding of JSON values.

It accepts the values of Avro's JSON encoding, and the values that the console shows:

- A value of a union may be in an object with the name of its branch: ``{"string": "x"}``. It may be without
  the object if it fits one branch better than the others.
- Bytes are ``{"base64": ...}``, or a text whose characters are the bytes, from U+0000 to U+00FF.
- Dates and times are numbers or ISO 8601. Decimals are numbers, or texts, which keep all digits.
- An omitted field gets its default.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from barnabas.client.json_bytes import from_base64, is_base64
from barnabas.client.schemas.avro_logical import LOGICAL, is_number
from barnabas.client.schemas.unfit import UnfitError, inside, require, value_text
from barnabas.kafka.records.record import encode_varint

_INTEGERS = {"int": 31, "long": 63}
_FLOATS = {"float": "<f", "double": "<d"}
_NAMED = ("record", "error", "enum", "fixed")
_SPECIAL = ("NaN", "Infinity", "-Infinity")
#: how a value fits a branch of a union: after a conversion to another type, or as its own type
_POSSIBLE, _NATURAL = 1, 2


class AvroJson:
    """Converts JSON values to the binary format of one Avro schema.

    Args:
        schema: parsed schema from fastavro.
        names: named types of the schema, by full name.
    """

    def __init__(self, schema: Any, names: Mapping[str, Any]) -> None:
        self._schema = schema
        self._names = names

    def write(self, value: Any, path: str) -> bytes:
        """Return the binary form of a JSON value. Raises UnfitError if the schema does not allow it.

        `path` names the value in the text of the error.
        """
        writing = _Writing(self._names)
        try:
            writing.write(self._schema, value, path)
        except RecursionError:
            raise UnfitError(f"{path}: it is nested too deeply") from None
        return bytes(writing.out)


class _Writing:
    def __init__(self, names: Mapping[str, Any]) -> None:
        self.out = bytearray()
        self._names = names
        #: whether a default is written: its values take the first branch that they fit, without logical types
        self._in_default = False

    def write(self, schema: Any, value: Any, path: str) -> None:
        if isinstance(schema, list):
            return self._union(schema, value, path)
        schema = self._named(schema)
        kind = schema if isinstance(schema, str) else schema["type"]
        if not isinstance(kind, str) or kind in self._names:
            return self.write(kind, value, path)
        if isinstance(schema, dict) and not self._in_default:
            convert = LOGICAL.get((kind, schema.get("logicalType", "")))
            value = convert(schema, value, path) if convert else value
        getattr(self, f"_{kind}")(schema, value, path)
        return None

    def _named(self, schema: Any) -> Any:
        return self._names.get(schema, schema) if isinstance(schema, str) else schema

    def _null(self, schema: Any, value: Any, path: str) -> None:
        require(value is None, path, value, "null")

    def _boolean(self, schema: Any, value: Any, path: str) -> None:
        require(isinstance(value, bool), path, value, "true or false")
        self.out.append(value)

    def _int(self, schema: Any, value: Any, path: str) -> None:
        self._integer("int", value, path)

    def _long(self, schema: Any, value: Any, path: str) -> None:
        self._integer("long", value, path)

    def _integer(self, kind: str, value: Any, path: str) -> None:
        bits = _INTEGERS[kind]
        allowed = f"a whole number from -2^{bits} to 2^{bits} - 1 ({kind})"
        require(_is_integer(value, bits), path, value, allowed)
        self.out += encode_varint(int(value))

    def _float(self, schema: Any, value: Any, path: str) -> None:
        self._floating("float", value, path)

    def _double(self, schema: Any, value: Any, path: str) -> None:
        self._floating("double", value, path)

    def _floating(self, kind: str, value: Any, path: str) -> None:
        allowed = f'a number ({kind}), or "NaN", "Infinity" or "-Infinity"'
        require(is_number(value) or value in _SPECIAL, path, value, allowed)
        try:
            self.out += struct.pack(_FLOATS[kind], float(value))
        except OverflowError:
            raise UnfitError(f"{path}: {value_text(value)} is too large for a {kind}") from None

    def _string(self, schema: Any, value: Any, path: str) -> None:
        require(isinstance(value, str), path, value, "a string")
        try:
            self._counted(value.encode())
        except UnicodeEncodeError:
            raise UnfitError(f"{path}: it has half of a surrogate pair; write whole characters") from None

    def _bytes(self, schema: Any, value: Any, path: str) -> None:
        self._counted(_bytes_of(value, path, "bytes"))

    def _fixed(self, schema: Any, value: Any, path: str) -> None:
        data = _bytes_of(value, path, f"{schema['size']} bytes ({schema['name']})")
        if len(data) != schema["size"]:
            raise UnfitError(f"{path}: it has {len(data)} bytes; {schema['name']} has {schema['size']}")
        self.out += data

    def _enum(self, schema: Any, value: Any, path: str) -> None:
        symbols = schema["symbols"]
        require(isinstance(value, str) and value in symbols, path, value, f"one of {_listed(symbols)}")
        self.out += encode_varint(symbols.index(value))

    def _array(self, schema: Any, value: Any, path: str) -> None:
        require(isinstance(value, list), path, value, "an array")
        if value:
            self.out += encode_varint(len(value))
        for index, item in enumerate(value):
            self.write(schema["items"], item, inside(path, index))
        self.out.append(0)

    def _map(self, schema: Any, value: Any, path: str) -> None:
        require(isinstance(value, dict), path, value, "an object (map)")
        if value:
            self.out += encode_varint(len(value))
        for key, item in value.items():
            self._string("string", key, path)
            self.write(schema["values"], item, inside(path, key))
        self.out.append(0)

    def _record(self, schema: Any, value: Any, path: str) -> None:
        fields = schema["fields"]
        require(isinstance(value, dict), path, value, f"an object ({schema['name']})")
        if unknown := value.keys() - {field["name"] for field in fields}:
            name = min(unknown)
            known = _listed([field["name"] for field in fields])
            raise UnfitError(
                f"{inside(path, name)}: {schema['name']} has no such field; its fields are {known}"
            )
        for field in fields:
            name = field["name"]
            if name in value:
                self.write(field["type"], value[name], inside(path, name))
            elif "default" in field:
                self._default(field, inside(path, name))
            else:
                raise UnfitError(
                    f"{inside(path, name)}: it is missing, and {schema['name']} has no default for it"
                )

    _error = _record

    def _default(self, field: Any, path: str) -> None:
        outer, self._in_default = self._in_default, True
        try:
            self.write(field["type"], field["default"], path)
        finally:
            self._in_default = outer

    def _counted(self, data: bytes) -> None:
        self.out += encode_varint(len(data)) + data

    def _union(self, branches: list[Any], value: Any, path: str) -> None:
        index, value = self._branch(branches, value, path)
        self.out += encode_varint(index)
        self.write(branches[index], value, path)

    def _branch(self, branches: list[Any], value: Any, path: str) -> tuple[int, Any]:
        """Return the index of the union's branch that `value` fits best, and the value to write.

        If `value` is an object with the name of a branch, such as ``{"string": "x"}``, the value to write is
        the inner one, "x". If several branches fit equally well, the first of them is chosen.

        In a default of the schema, `value` is returned unchanged, with the first branch that it fits at all.

        Args:
            path: place of `value`, for errors.

        Raises:
            UnfitError: the value fits no branch, or it is an object that fits several branches equally well.
        """
        if isinstance(value, dict) and len(value) == 1 and not self._in_default:
            (name,) = value
            named = [index for index, each in enumerate(branches) if name in self._branch_names(each)]
            if len(named) == 1:
                return named[0], value[name]
        fits = [self._fit(branch, value) for branch in branches]
        best = next((fit for fit in fits if fit), 0) if self._in_default else max(fits)
        if not best:
            names = _listed([self._branch_names(branch)[0] for branch in branches])
            raise UnfitError(
                f"{path}: {value_text(value)} fits no branch of the union; its branches are {names}"
            )
        index = fits.index(best)
        if not self._in_default and isinstance(value, dict) and fits.count(best) > 1:
            name = self._branch_names(branches[index])[0]
            raise UnfitError(
                f'{path}: it fits several branches of the union; name one, such as {{"{name}": ...}}'
            )
        return index, value

    def _branch_names(self, schema: Any) -> tuple[str, ...]:
        """Return the names of a branch: full name and simple name of a named type, else the type's name."""
        schema = self._named(schema)
        if isinstance(schema, str):
            return (schema,)
        if schema["type"] in _NAMED:
            return schema["name"], schema["name"].rpartition(".")[2]
        return (str(schema["type"]),)

    def _fit(self, schema: Any, value: Any) -> int:
        """Return how well a value fits a branch of a union, as a number.

        The result is `_NATURAL` if the branch has the JSON type of the value. It is `_POSSIBLE` if the value
        can be converted to the branch, and 0 if it does not fit.
        """
        schema = self._named(schema)
        kind = schema if isinstance(schema, str) else schema["type"]
        if not isinstance(kind, str) or kind in self._names:
            return self._fit(kind, value)
        logical = "" if isinstance(schema, str) else schema.get("logicalType", "")
        if value is None or isinstance(value, bool):
            return _NATURAL if kind == ("null" if value is None else "boolean") else 0
        if isinstance(value, list):
            return _NATURAL if kind == "array" else 0
        if isinstance(value, str):
            return _fit_of_text(kind, logical, schema, value)
        if isinstance(value, dict):
            if kind in ("bytes", "fixed"):
                return _NATURAL if is_base64(value) else 0
            if kind == "map":
                return _POSSIBLE
            return _NATURAL if kind in ("record", "error") and _has_names(schema, value) else 0
        if kind in _INTEGERS:
            return _NATURAL if _is_integer(value, _INTEGERS[kind]) else 0
        if kind in _FLOATS or logical == "decimal":
            return _NATURAL if isinstance(value, float) and kind != "float" else _POSSIBLE
        return 0


def _fit_of_text(kind: str, logical: str, schema: Any, text: str) -> int:
    if kind == "string" or (kind == "enum" and text in schema["symbols"]):
        return _NATURAL
    if kind in _FLOATS:
        return _POSSIBLE if text in _SPECIAL else 0
    return _POSSIBLE if kind in ("bytes", "fixed") or (kind, logical) in LOGICAL else 0


def _has_names(schema: Any, value: dict[str, Any]) -> bool:
    names = {field["name"] for field in schema["fields"]}
    needed = {field["name"] for field in schema["fields"] if "default" not in field}
    return needed <= value.keys() <= names


def _is_integer(value: Any, bits: int) -> bool:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << bits) <= value < 1 << bits


def _listed(names: list[str]) -> str:
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _bytes_of(value: Any, path: str, what: str) -> bytes:
    if isinstance(value, bytes):  # a decimal, a UUID
        return value
    try:
        if is_base64(value):
            return from_base64(value)
        if isinstance(value, str):
            return value.encode("latin-1")
    except (ValueError, TypeError):
        pass
    raise UnfitError(
        f'{path}: {value_text(value)} does not fit; write {what} as {{"base64": "..."}}, or as a string of '
        "the characters U+0000 to U+00FF"
    )
