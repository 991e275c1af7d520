"""Checks whether one JSON Schema accepts every document that another accepts.

A reader's schema must accept every document of a writer's schema. The schemas are compared keyword by
keyword. A keyword that cannot be compared (``pattern``, ``if``) may be removed, but not added or changed. The
kinds of incompatibilities have the names of Confluent's registry. A property with a restriction may be added
only if the old schema allowed no other properties.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from barnabas.registry.errors import InvalidSchemaError
from barnabas.registry.incompatibility import Incompatibility
from barnabas.registry.jsonschema.patterns import matcher
from barnabas.registry.limits import REASONS, Steps

if TYPE_CHECKING:
    from referencing._core import Resolver

_TYPES = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))
#: keywords of limits, and whether a greater value is stricter
_LIMITS = {
    "minimum": True,
    "maximum": False,
    "exclusiveMinimum": True,
    "exclusiveMaximum": False,
    "minLength": True,
    "maxLength": False,
    "minItems": True,
    "maxItems": False,
    "minProperties": True,
    "maxProperties": False,
}
#: keywords that may be removed, but not changed or added
_FIXED = (
    "pattern",
    "if",
    "then",
    "else",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
)
_ANYTHING: dict[str, Any] = {}
_ANNOTATIONS = {
    *("$schema", "$id", "$comment", "title", "description", "default", "examples", "definitions", "$defs"),
    *("id", "format", "readOnly", "writeOnly", "deprecated"),
}


@dataclass(frozen=True, slots=True)
class Located:
    """A JSON Schema or a part of one (`contents`), with the resolver that finds the targets of ``$ref``."""

    contents: Any
    resolver: Resolver[Any]

    def inside(self, contents: Any) -> Located:
        return Located(contents, self.resolver)

    def resolved(self) -> Located:
        """Return the target of the schema's ``$ref``, or the schema itself without ``$ref``.

        Keywords beside ``$ref`` are ignored, as in drafts up to 7. Raises InvalidSchemaError if the target is
        not a schema.
        """
        schema = self
        for _ in range(100):  # a chain of references may be a cycle
            reference = schema.contents.get("$ref") if isinstance(schema.contents, dict) else None
            if not isinstance(reference, str):
                break
            schema = schema.lookup(reference)
        if not isinstance(schema.contents, dict | bool):
            raise InvalidSchemaError(f"a $ref refers to {schema.contents!r}, which is not a schema")
        return schema

    def lookup(self, reference: str) -> Located:
        from referencing.exceptions import Unresolvable

        try:
            found = self.resolver.lookup(reference)
        except (Unresolvable, ValueError) as error:
            raise InvalidSchemaError(f"$ref {reference} leads nowhere: {error}") from None
        return Located(found.contents, found.resolver)

    def get(self, keyword: str, otherwise: Any = None) -> Any:
        return self.contents.get(keyword, otherwise)

    def accepts_all(self) -> bool:
        return self.contents is True or (
            isinstance(self.contents, dict) and not self.contents.keys() - _ANNOTATIONS
        )


def rejections(reader: Located, writer: Located) -> list[Incompatibility]:
    """Return reasons why `reader` may reject documents that `writer` accepts.

    The list has at most `limits.REASONS` reasons. It is empty if `reader` accepts all of these documents.

    Raises:
        TooLargeError: the comparison takes too many steps.
        InvalidSchemaError: a ``$ref`` has no target, or its target is not a schema.
    """
    return _Check().compare(reader, writer, "#")


class _Check:
    def __init__(self) -> None:
        # By the ids of two JSON values. `_kept` refers to these values, so that no later value gets the same
        # id. A pair whose comparison has not ended counts as compatible, so that recursive schemas end.
        self._under_way: dict[tuple[int, int], list[Incompatibility]] = {}
        self._kept: list[Any] = []
        # The schemas that the comparison builds, by the ids of their parts (see `_one`).
        self._made: dict[tuple[Any, ...], Any] = {}
        self._texts: dict[int, tuple[bytes, bool]] = {}
        self._steps = Steps()

    def compare(self, reader: Located, writer: Located, path: str) -> list[Incompatibility]:
        self._steps.spend()
        reader, writer = reader.resolved(), writer.resolved()
        if reader.accepts_all() or writer.contents is False:
            return []
        if reader.contents is False:
            return [Incompatibility("NOT_ACCEPTED", path, "nothing is accepted any more")]
        if writer.accepts_all():
            writer = writer.inside(_ANYTHING)
        pair = (id(reader.contents), id(writer.contents))
        if pair in self._under_way:
            return self._under_way[pair]
        self._under_way[pair] = []
        self._kept += [reader.contents, writer.contents]
        if not self._say_the_same(reader.contents, writer.contents):
            # Each schema once: every path to a schema would report its errors again.
            found = dict.fromkeys(islice(self._compare(reader, writer, path), REASONS))
            self._under_way[pair] = list(found)
        return self._under_way[pair]

    def _say_the_same(self, reader: Any, writer: Any) -> bool:
        """Whether both schemas have the same text, and this text has no ``$ref``.

        The targets of equal references could differ between the schemas.
        """
        digest, refers = self._digest(reader)
        return not refers and self._digest(writer)[0] == digest

    def _digest(self, contents: Any) -> tuple[bytes, bool]:
        """Return a digest of a schema's JSON text, and whether the text has a ``$ref``."""
        if id(contents) not in self._texts:
            text = _text(contents)
            digest = hashlib.sha256(text.encode()).digest()
            self._texts[id(contents)] = digest, '"$ref"' in text
            self._kept.append(contents)
            self._steps.spend(len(text) // 1000)
        return self._texts[id(contents)]

    def _one(self, made: Any) -> Any:
        """Return the first object that had the same elements as `made`; `made` itself if there is none.

        `made` is a dict or a list. Two elements are the same if they are one object. So equal schemas that
        the comparison builds are one object, and are compared once.
        """
        parts = made.items() if isinstance(made, dict) else enumerate(made)
        self._steps.spend(1 + len(made) // 10)
        key = (type(made), *sorted((str(name), id(value)) for name, value in parts))
        return self._made.setdefault(key, made)

    def _compare(self, reader: Located, writer: Located, path: str) -> Iterator[Incompatibility]:
        for union in ("anyOf", "oneOf"):
            if union in writer.contents:  # each alternative must be accepted, with what holds beside it
                rest = self._one({key: value for key, value in writer.contents.items() if key != union})
                for number, branch in enumerate(writer.get(union)):
                    yield from self._each(reader, writer, rest, branch, f"{path}/{union}/{number}")
                return
        if "allOf" in writer.contents:
            yield from self._narrowest(reader, writer, path)
            return
        for union in ("anyOf", "oneOf"):
            if union in reader.contents and all(
                self.compare(reader.inside(branch), writer, path) for branch in reader.get(union)
            ):
                yield Incompatibility(
                    "SUM_TYPE_NARROWED", f"{path}/{union}", "no alternative accepts what was accepted"
                )
        for number, part in enumerate(reader.get("allOf", ())):
            yield from self.compare(reader.inside(part), writer, f"{path}/allOf/{number}")
        yield from self._types(reader, writer, path)
        yield from self._values(reader, writer, path)
        types = _types(writer)
        if "object" in types and "object" in _types(reader):
            yield from self._objects(reader, writer, path)
        if "array" in types and "array" in _types(reader):
            yield from self._arrays(reader, writer, path)
        if "not" in reader.contents and (
            "not" not in writer.contents
            or self.compare(writer.inside(writer.get("not")), reader.inside(reader.get("not")), "")
        ):
            yield Incompatibility("NOT_TYPE_EXTENDED", f"{path}/not", "more is excluded than before")

    def _each(
        self, reader: Located, writer: Located, rest: dict[str, Any], branch: Any, path: str
    ) -> Iterator[Incompatibility]:
        if rest.keys() - _ANNOTATIONS:
            both = self._one({"allOf": self._one([rest, branch])})
            yield from self.compare(reader, writer.inside(both), path)
        else:
            yield from self.compare(reader, writer.inside(branch), path)

    def _narrowest(self, reader: Located, writer: Located, path: str) -> list[Incompatibility]:
        """Return the reasons why `reader` may reject documents of `writer`, which has `allOf`.

        The result is empty if `reader` accepts all documents of one schema in the `allOf`. If not, all these
        schemas are merged into one schema, and the result has the reasons for the merged schema. `path` is
        the place in the reader's schema, for the reasons.
        """
        merged: dict[str, Any] = {key: value for key, value in writer.contents.items() if key != "allOf"}
        for part in (writer.inside(part).resolved() for part in writer.get("allOf")):
            if not isinstance(part.contents, dict):
                continue
            if not self.compare(reader, part, path):
                return []
            merged = self._merged(merged, part.contents)
        return self.compare(reader, writer.inside(self._one(merged)), path)

    def _merged(self, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        """Return a schema that accepts the documents that both `one` and `other` accept.

        If both schemas have a keyword whose values cannot be combined, the result has the value of `one`. The
        result then accepts more documents, so the comparison can only report more incompatibilities.
        """
        merged = {**other, **one}
        if "properties" in one and "properties" in other:
            merged["properties"] = self._one({**other["properties"], **one["properties"]})
        for keyword in ("required", "allOf"):
            if keyword in one and keyword in other:
                every = {id(part): part for part in (*one[keyword], *other[keyword])}
                merged[keyword] = self._one(list(every.values()))
        return merged

    def _types(self, reader: Located, writer: Located, path: str) -> Iterator[Incompatibility]:
        lost = _types(writer) - _types(reader)
        if lost:
            yield Incompatibility("TYPE_NARROWED", f"{path}/type", f"takes no more {', '.join(sorted(lost))}")

    def _values(self, reader: Located, writer: Located, path: str) -> Iterator[Incompatibility]:
        allowed = _values(reader)
        if allowed is not None:
            before = _values(writer)
            if before is None or not {_text(value) for value in before} <= {
                _text(value) for value in allowed
            }:
                yield Incompatibility("ENUM_ARRAY_NARROWED", f"{path}/enum", "fewer values are allowed")
        for keyword, greater in _LIMITS.items():
            limit, before = reader.get(keyword), writer.get(keyword)
            if limit is None or limit == before:
                continue
            if before is None or isinstance(limit, bool) or (limit > before) == greater:
                yield Incompatibility(_code(keyword, before), f"{path}/{keyword}", f"{before} became {limit}")
        step, before = reader.get("multipleOf"), writer.get("multipleOf")
        if step is not None and (before is None or not _divides(step, before)):
            yield Incompatibility("MULTIPLE_OF_CHANGED", f"{path}/multipleOf", f"{before} became {step}")
        if reader.get("uniqueItems") and not writer.get("uniqueItems"):
            yield Incompatibility("UNIQUE_ITEMS_ADDED", f"{path}/uniqueItems", "items must differ now")
        for keyword in _FIXED:
            if keyword in reader.contents and reader.get(keyword) != writer.get(keyword):
                yield Incompatibility(
                    _code(keyword, writer.get(keyword)), f"{path}/{keyword}", f"{keyword} came or changed"
                )

    def _property(self, schema: Located, name: str) -> Located:
        """Return the schema for the property `name`: its schema in ``properties``, if there is one.

        If not, return the schema of the first pattern in ``patternProperties`` that matches the name. If no
        pattern matches, return ``additionalProperties``, by default ``true``.
        """
        properties = schema.get("properties", {})
        if name in properties:
            return schema.inside(properties[name])
        for pattern, contents in schema.get("patternProperties", {}).items():
            self._steps.spend()
            if matcher(pattern).search(name):
                return schema.inside(contents)
        return schema.inside(schema.get("additionalProperties", True))

    def _objects(self, reader: Located, writer: Located, path: str) -> Iterator[Incompatibility]:
        properties, before = reader.get("properties", {}), writer.get("properties", {})
        for name in {**properties, **before}:
            found = self.compare(
                self._property(reader, name), self._property(writer, name), f"{path}/properties/{name}"
            )
            if found and name not in before:
                words = f"{name} could be anything before, and what it may be now is narrower"
                found = [
                    Incompatibility(
                        "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", f"{path}/properties/{name}", words
                    )
                ]
            elif found and name not in properties and self._property(reader, name).contents is False:
                words = f"{name} is gone, and no other property is allowed"
                found = [
                    Incompatibility(
                        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", f"{path}/properties/{name}", words
                    )
                ]
            yield from found
        required = set(writer.get("required", ()))
        for name in reader.get("required", ()):
            own = properties.get(name)
            has_default = isinstance(own, dict) and "default" in own
            if name not in required and not has_default:
                words = f"{name} is required now and has no default"
                yield Incompatibility("REQUIRED_ATTRIBUTE_ADDED", f"{path}/required", words)
        patterns = {**reader.get("patternProperties", {}), **writer.get("patternProperties", {})}
        for pattern in patterns:
            yield from self.compare(
                _by_pattern(reader, pattern),
                _by_pattern(writer, pattern),
                f"{path}/patternProperties/{pattern}",
            )
        extra = (reader.get("additionalProperties", True), writer.get("additionalProperties", True))
        yield from self.compare(
            reader.inside(extra[0]), writer.inside(extra[1]), f"{path}/additionalProperties"
        )
        if "propertyNames" in reader.contents:
            names = (reader.get("propertyNames"), writer.get("propertyNames", True))
            yield from self.compare(reader.inside(names[0]), writer.inside(names[1]), f"{path}/propertyNames")

    def _arrays(self, reader: Located, writer: Located, path: str) -> Iterator[Incompatibility]:
        (first, rest), (first_before, rest_before) = _items(reader), _items(writer)
        for number in range(max(len(first), len(first_before))):
            item = first[number] if number < len(first) else rest
            before = first_before[number] if number < len(first_before) else rest_before
            yield from self.compare(reader.inside(item), writer.inside(before), f"{path}/items/{number}")
        yield from self.compare(reader.inside(rest), writer.inside(rest_before), f"{path}/items")


def _divides(step: Any, number: Any) -> bool:
    try:
        return bool(number % step == 0)
    except OverflowError:  # a whole number beyond what a fraction can be compared with
        return False


def _types(schema: Located) -> frozenset[str]:
    given = schema.get("type")
    if given is None:
        return _TYPES
    types = {given} if isinstance(given, str) else set(given)
    return frozenset(types | {"integer"} if "number" in types else types)


def _values(schema: Located) -> list[Any] | None:
    if "const" in schema.contents:
        return [schema.get("const")]
    values: list[Any] | None = schema.get("enum")
    return values


def _by_pattern(schema: Located, pattern: str) -> Located:
    extra = schema.get("additionalProperties", True)
    return schema.inside(schema.get("patternProperties", {}).get(pattern, extra))


def _items(schema: Located) -> tuple[list[Any], Any]:
    """Return the schemas of an array's first items, one for each, and the schema of all later items."""
    items = schema.get("items", True)
    if isinstance(items, list):  # up to draft 2019-09
        return items, schema.get("additionalItems", True)
    return schema.get("prefixItems", []), items


def _text(value: Any) -> str:
    # Python takes 1 for true, JSON does not.
    return json.dumps(value, sort_keys=True)


def _code(keyword: str, before: Any) -> str:
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", keyword).upper()
    return f"{name}_{'ADDED' if before is None else 'CHANGED'}"
