"""Parses an Avro schema from JSON into a tree of nodes, and checks every rule but those of default values
(`defaults`).

Source: https://avro.apache.org/docs/1.12.0/specification/. `fastavro` parses schemas too. But it accepts
schemas that Java's parser rejects (two fields of one name, unions in unions), and loses the order and the
namespaces.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.registry.errors import InvalidSchemaError

PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
RECORDS = frozenset(("record", "error"))
NAMED = RECORDS | {"enum", "fixed"}

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_ORDERS = ("ascending", "descending", "ignore")

#: the attributes that the specification defines; any other attribute is a property, which is kept
_RESERVED = {
    "record": {"type", "name", "namespace", "doc", "aliases", "fields"},
    "enum": {"type", "name", "namespace", "doc", "aliases", "symbols", "default"},
    "fixed": {"type", "name", "namespace", "doc", "aliases", "size"},
    "array": {"type", "items"},
    "map": {"type", "values"},
    "field": {"name", "type", "doc", "default", "order", "aliases"},
}
_RESERVED["error"] = _RESERVED["record"]


@dataclass(slots=True, eq=False)
class SchemaNode:
    """A node in the tree of an Avro schema.

    `kind` is the name of the type, or ``union``. A named type has its full name in `name`. Two nodes are
    equal only if they are the same object, because a recursive schema contains itself.
    """

    kind: str
    name: str = ""
    doc: str | None = None
    aliases: tuple[str, ...] = ()
    fields: list[Field] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    default: str | None = None
    size: int = 0
    #: an array's items, or a map's values
    inner: SchemaNode | None = None
    branches: tuple[SchemaNode, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)

    @property
    def simple_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def namespace(self) -> str:
        return self.name.rpartition(".")[0]


@dataclass(slots=True, eq=False)
class Field:
    """A record's field."""

    name: str
    node: SchemaNode
    doc: str | None = None
    has_default: bool = False
    default: Any = None
    order: str = "ascending"
    aliases: tuple[str, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)


def read(schema: Any, known: dict[str, SchemaNode]) -> SchemaNode:
    """Parse a schema from its JSON value. Return its node.

    `known` has the named types that the schema may refer to, by full name. The types that the schema defines
    are added to `known`.

    Raises:
        InvalidSchemaError: the schema breaks a rule of Avro. Default values of fields are not checked.
    """
    return _Reader(known).node(schema, "")


class _Reader:
    def __init__(self, known: dict[str, SchemaNode]) -> None:
        self._known = known

    def node(self, schema: Any, namespace: str) -> SchemaNode:
        if isinstance(schema, str):
            return self._called(schema, namespace)
        if isinstance(schema, list):
            return self._union(schema, namespace)
        if not isinstance(schema, dict):
            raise InvalidSchemaError(f"{schema!r} is neither a type's name, nor an object, nor a union")
        kind = schema.get("type")
        if isinstance(kind, dict | list):  # {"type": {"type": ...}} means the same as the inner type
            return self.node(kind, namespace)
        if not isinstance(kind, str):
            raise InvalidSchemaError(f"no type in {schema}")
        if kind in RECORDS:
            return self._record(schema, kind, namespace)
        if kind == "enum":
            return self._enum(schema, namespace)
        if kind == "fixed":
            return self._fixed(schema, namespace)
        if kind in ("array", "map"):
            inside = "items" if kind == "array" else "values"
            if inside not in schema:
                raise InvalidSchemaError(f"a {kind} has no {inside}: {schema}")
            return SchemaNode(
                kind, inner=self.node(schema[inside], namespace), properties=_properties(schema, kind)
            )
        if kind in PRIMITIVES:
            return SchemaNode(kind, properties={k: v for k, v in schema.items() if k != "type"})
        return self._called(kind, namespace)

    def _called(self, name: str, namespace: str) -> SchemaNode:
        if name in PRIMITIVES:
            return SchemaNode(name)
        for full in (_full_name(name, namespace), name):
            if full in self._known:
                return self._known[full]
        raise InvalidSchemaError(f'undefined name: "{name}"')

    def _union(self, schema: list[Any], namespace: str) -> SchemaNode:
        branches = tuple(self.node(branch, namespace) for branch in schema)
        seen = set()
        for branch in branches:
            if branch.kind == "union":
                raise InvalidSchemaError(f"a union contains a union: {schema}")
            what = branch.name if branch.kind in NAMED else branch.kind
            if what in seen:
                raise InvalidSchemaError(f"a union contains {what} twice: {schema}")
            seen.add(what)
        return SchemaNode("union", branches=branches)

    def _record(self, schema: dict[str, Any], kind: str, namespace: str) -> SchemaNode:
        node = self._named(schema, kind, namespace)
        fields = schema.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchemaError(f"record {node.name} has no list of fields")
        names = set()
        for described in fields:
            made = self._field(described, node)
            if made.name in names:
                raise InvalidSchemaError(f"record {node.name} has two fields called {made.name}")
            names.add(made.name)
            node.fields.append(made)
        return node

    def _field(self, described: Any, record: SchemaNode) -> Field:
        if not isinstance(described, dict) or "type" not in described:
            raise InvalidSchemaError(f"a field of record {record.name} has no type: {described!r}")
        order = described.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in _ORDERS:
            raise InvalidSchemaError(
                f"order {order!r} of a field of {record.name}: it is {', '.join(_ORDERS)}"
            )
        return Field(
            _checked_name(described.get("name")),
            self.node(described["type"], record.namespace),
            doc=_text(described, "doc"),
            has_default="default" in described,
            default=described.get("default"),
            order=order.lower(),
            aliases=tuple(dict.fromkeys(_texts(described, "aliases"))),
            properties=_properties(described, "field"),
        )

    def _enum(self, schema: dict[str, Any], namespace: str) -> SchemaNode:
        node = self._named(schema, "enum", namespace)
        if "symbols" not in schema:
            raise InvalidSchemaError(f"enum {node.name} has no symbols")
        node.symbols = tuple(_checked_name(symbol) for symbol in _texts(schema, "symbols"))
        if len(set(node.symbols)) < len(node.symbols):
            raise InvalidSchemaError(f"enum {node.name} has a symbol twice")
        node.default = _text(schema, "default")
        if node.default is not None and node.default not in node.symbols:
            raise InvalidSchemaError(f"the default {node.default} is not a symbol of enum {node.name}")
        return node

    def _fixed(self, schema: dict[str, Any], namespace: str) -> SchemaNode:
        node = self._named(schema, "fixed", namespace)
        size = schema.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise InvalidSchemaError(f"fixed {node.name} has no size, a whole number of bytes: {size!r}")
        node.size = size
        return node

    def _named(self, schema: dict[str, Any], kind: str, namespace: str) -> SchemaNode:
        name = schema.get("name")
        if not isinstance(name, str) or not name:
            raise InvalidSchemaError(f"no name in {kind} schema {schema}")
        full = _full_name(name, _text(schema, "namespace") if "namespace" in schema else namespace)
        for part in full.split("."):
            _checked_name(part)
        if full in self._known or full in PRIMITIVES:
            raise InvalidSchemaError(f"cannot redefine {full}")
        space = full.rpartition(".")[0]
        node = SchemaNode(
            kind,
            name=full,
            doc=_text(schema, "doc"),
            aliases=tuple(dict.fromkeys(_full_name(alias, space) for alias in _texts(schema, "aliases"))),
            properties=_properties(schema, kind),
        )
        self._known[full] = node
        return node


def _full_name(name: str, namespace: str | None) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _checked_name(name: Any) -> str:
    if not isinstance(name, str) or not _NAME.match(name):
        raise InvalidSchemaError(f"illegal name {name!r}: letters, digits and _ only, and no digit first")
    return name


def _text(schema: Mapping[str, Any], key: str) -> str | None:
    value = schema.get(key)
    if value is not None and not isinstance(value, str):
        raise InvalidSchemaError(f"{key} is not a string: {value!r}")
    return value


def _texts(schema: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = schema.get(key) or []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidSchemaError(f"{key} is not a list of strings: {value!r}")
    return tuple(value)


def _properties(schema: Mapping[str, Any], kind: str) -> dict[str, Any]:
    reserved = _RESERVED[kind]
    return {key: value for key, value in schema.items() if key not in reserved}
