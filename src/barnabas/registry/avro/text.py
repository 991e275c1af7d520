"""Prints an Avro schema in canonical form: the text of Java's `Schema.toString`, as in Confluent's registry.

Attributes have a fixed order, without spaces. A namespace is printed only where it changes. After its
definition, a type is printed by name. Documentation and unknown properties are kept.

More schemas have the same normalized text, as in Confluent's registry. Aliases and properties are sorted, but
those of a valid logical type come first. An `error` is a `record`, and types have no empty documentation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from barnabas.base.types import Json, JsonObject
from barnabas.registry.avro.logical_types import logical_properties
from barnabas.registry.avro.nodes import NAMED, RECORDS, Field, SchemaNode


def write(node: SchemaNode, *, normalize: bool = False, defined: frozenset[str] = frozenset()) -> str:
    """Return the canonical text of a schema: JSON without spaces.

    Args:
        node: the parsed schema.
        normalize: whether to return the normalized text.
        defined: full names of types that referenced schemas define. The result has only the names of these
            types, not their definitions.
    """
    form = _Writer(normalize, set(defined)).form(node, "")
    return json.dumps(form, ensure_ascii=False, separators=(",", ":"))


class _Writer:
    def __init__(self, normalize: bool, defined: set[str]) -> None:
        self._normalize = normalize
        self._defined = defined

    def form(self, node: SchemaNode, namespace: str) -> Json:
        if node.kind == "union":
            return [self.form(branch, namespace) for branch in node.branches]
        if node.kind in NAMED:
            if node.name in self._defined:
                return _relative(node.name, namespace)
            self._defined.add(node.name)
            return self._definition(node, namespace)
        if node.inner is not None:
            inside = "items" if node.kind == "array" else "values"
            return {"type": node.kind, inside: self.form(node.inner, namespace), **self._kept(node)}
        return {"type": node.kind, **self._kept(node)} if node.properties else node.kind

    def _definition(self, node: SchemaNode, namespace: str) -> JsonObject:
        kind = "record" if self._normalize and node.kind in RECORDS else node.kind
        form: JsonObject = {"type": kind, "name": node.simple_name}
        if node.namespace != namespace:
            form["namespace"] = node.namespace
        if node.doc or (node.doc is not None and not self._normalize):
            form["doc"] = node.doc
        if node.kind in RECORDS:
            form["fields"] = [self._field(field, node.namespace) for field in node.fields]
        elif node.kind == "enum":
            form["symbols"] = list(node.symbols)
            if node.default is not None:
                form["default"] = node.default
        else:
            form["size"] = node.size
        form |= self._kept(node)
        if node.aliases:
            form["aliases"] = [_relative(alias, node.namespace) for alias in self._in_order(node.aliases)]
        return form

    def _field(self, field: Field, namespace: str) -> JsonObject:
        form: JsonObject = {"name": field.name, "type": self.form(field.node, namespace)}
        if field.doc is not None:
            form["doc"] = field.doc
        if field.has_default:
            form["default"] = _sorted(field.default) if self._normalize else field.default
        if field.order != "ascending":
            form["order"] = field.order
        if field.aliases:
            form["aliases"] = list(self._in_order(field.aliases))
        return form | self._kept(field)

    def _in_order(self, aliases: tuple[str, ...]) -> Iterable[str]:
        return sorted(aliases) if self._normalize else aliases

    def _kept(self, node: SchemaNode | Field) -> JsonObject:
        properties = node.properties
        if not self._normalize:
            return dict(properties)
        first = logical_properties(node) if isinstance(node, SchemaNode) else ()
        ordered = dict.fromkeys((*(key for key in first if key in properties), *sorted(properties)))
        return {key: _sorted(properties[key]) for key in ordered}


def _sorted(value: Any) -> Any:
    """Return the JSON value with the keys of its objects in order."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _relative(name: str, namespace: str) -> str:
    space, _, simple = name.rpartition(".")
    return simple if space == namespace else name
