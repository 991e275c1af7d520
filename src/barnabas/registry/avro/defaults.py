"""Checks the default values of fields, by the rules of Java's Avro library.

Source: https://avro.apache.org/docs/1.12.0/specification/#complex-types. `fastavro` rejects some defaults
that Java accepts, such as 0 for a double that has properties. It accepts some that Java rejects, such as a
record without one of its fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from barnabas.registry.avro.nodes import RECORDS, Field, SchemaNode
from barnabas.registry.errors import InvalidSchemaError
from barnabas.registry.limits import Steps, shortened

_WHOLE_NUMBERS = {"int": 1 << 31, "long": 1 << 63}
#: JSON has no such numbers, so Java reads them from strings
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")


def check_defaults(node: SchemaNode) -> None:
    """Check the default of each field in the schema.

    Raises:
        InvalidSchemaError: a default is not a value of its field's type. For a union, it must be a value of
            one of the branches.
        TooLargeError: the checks take too many steps.
    """
    check = _Check()
    for field in _fields(node):
        if field.has_default and not check.accepts(field):
            value = shortened(json.dumps(field.default, ensure_ascii=False), 80)
            raise InvalidSchemaError(f"the default of field {field.name} is not a value of its type: {value}")


class _Check:
    def __init__(self) -> None:
        #: fields of which the default is, or is not, a value of the type; None while a check is under way
        self._results: dict[Field, bool | None] = {}
        self._steps = Steps("checking its default values")

    def accepts(self, field: Field) -> bool:
        """Whether the field's default is a value of its type. False if the default contains itself."""
        if field not in self._results:
            self._results[field] = None
            self._results[field] = self._matches(field.node, field.default)
        return self._results[field] is True

    def _matches(self, node: SchemaNode, value: Any) -> bool:
        self._steps.spend()
        kind = node.kind
        if kind == "union":
            return any(self._matches(branch, value) for branch in node.branches)
        if kind in RECORDS:
            return isinstance(value, dict) and all(self._has_field(field, value) for field in node.fields)
        if node.inner is not None:
            if not isinstance(value, list if kind == "array" else dict):
                return False
            inside = value.values() if isinstance(value, dict) else value
            return all(self._matches(node.inner, item) for item in inside)
        if kind == "null":
            return value is None
        if kind == "boolean":
            return isinstance(value, bool)
        if kind in _WHOLE_NUMBERS:
            limit = _WHOLE_NUMBERS[kind]
            return type(value) is int and -limit <= value < limit
        if kind in ("float", "double"):
            return type(value) in (int, float) or value in _NOT_FINITE
        return isinstance(value, str)

    def _has_field(self, field: Field, record: dict[str, Any]) -> bool:
        if field.name in record:
            return self._matches(field.node, record[field.name])
        return field.has_default and self.accepts(field)


def _fields(root: SchemaNode) -> Iterator[Field]:
    """Yield every field of every record in the schema once.

    The fields of a record come after those of the records that it refers to, unless these refer to it, too.
    So the checks do not call each other along a chain of references.
    """
    seen = {root}
    path = [(root, _inside(root))]
    while path:
        node, inside = path[-1]
        following = next((each for each in inside if each not in seen), None)
        if following is None:
            path.pop()
            yield from node.fields
        else:
            seen.add(following)
            path.append((following, _inside(following)))


def _inside(node: SchemaNode) -> Iterator[SchemaNode]:
    yield from (field.node for field in node.fields)
    yield from node.branches
    if node.inner is not None:
        yield node.inner
