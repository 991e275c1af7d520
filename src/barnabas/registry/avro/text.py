"""Prints an Avro schema in canonical form: the text of Java's `Schema.toString`, as in Confluent's registry.

Attributes have a fixed order, without spaces. A namespace is printed only where it changes. After its
definition, a type is printed by name. Documentation and unknown properties are kept.
"""

from __future__ import annotations

import json

from barnabas.base.types import Json, JsonObject
from barnabas.registry.avro.nodes import NAMED, RECORDS, Field, SchemaNode


def write(node: SchemaNode, *, sort_properties: bool = False, defined: frozenset[str] = frozenset()) -> str:
    """Return the canonical text of a schema: JSON without spaces.

    Args:
        node: the parsed schema.
        sort_properties: whether to sort the properties that Avro does not define. If false, these properties
            keep their order.
        defined: full names of types that referenced schemas define. The result has only the names of these
            types, not their definitions.
    """
    form = _Writer(sort_properties, set(defined)).form(node, "")
    return json.dumps(form, ensure_ascii=False, separators=(",", ":"))


class _Writer:
    def __init__(self, sort_properties: bool, defined: set[str]) -> None:
        self._sort = sort_properties
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
        form: JsonObject = {"type": node.kind, "name": node.simple_name}
        if node.namespace != namespace:
            form["namespace"] = node.namespace
        if node.doc is not None:
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
            form["aliases"] = [_relative(alias, node.namespace) for alias in node.aliases]
        return form

    def _field(self, field: Field, namespace: str) -> JsonObject:
        form: JsonObject = {"name": field.name, "type": self.form(field.node, namespace)}
        if field.doc is not None:
            form["doc"] = field.doc
        if field.has_default:
            form["default"] = field.default
        if field.order != "ascending":
            form["order"] = field.order
        if field.aliases:
            form["aliases"] = list(field.aliases)
        return form | self._kept(field)

    def _kept(self, node: SchemaNode | Field) -> JsonObject:
        items = node.properties.items()
        return dict(sorted(items) if self._sort else items)


def _relative(name: str, namespace: str) -> str:
    space, _, simple = name.rpartition(".")
    return simple if space == namespace else name
