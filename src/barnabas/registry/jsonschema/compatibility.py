"""Checks whether one JSON Schema accepts every document that another accepts.

A reader's schema must accept every document of a writer's schema. The schemas are compared keyword by
keyword. A keyword that cannot be compared (``pattern``) may be removed, but not added or changed. The kinds
of incompatibilities have the names of Confluent's registry. A property with a restriction may be added only
if the old schema allowed no other properties.
"""

from __future__ import annotations

import hashlib
import json
import math
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
_FIXED = ("pattern", "$dynamicRef", "$recursiveRef")
#: the first is draft 7's name of the two others
_DEPENDENCIES = ("dependencies", "dependentRequired", "dependentSchemas")
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
#: keywords whose parts evaluate properties or items; ``unevaluatedProperties`` does not apply to these
_COMPOSITION = frozenset(("allOf", "anyOf", "oneOf", "if", "contains", *_FIXED[1:], *_DEPENDENCIES))
#: keywords whose meaning depends on each other
_GROUPS = (
    ("contains", "minContains", "maxContains"),
    ("if", "then", "else"),
    ("patternProperties", "additionalProperties", "unevaluatedProperties"),
    ("prefixItems", "items", "additionalItems", "unevaluatedItems"),
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

        Keywords beside ``$ref`` are ignored, as in drafts up to 7. `JsonSchema` moves the ``$ref`` of later
        drafts into ``allOf``. Raises InvalidSchemaError if the target is not a schema.
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

    def part(self, keyword: str) -> Located | None:
        """Return the schema in `keyword`; None if the draft does not know the keyword, or it is missing."""
        contents = self.get(keyword)
        return self.inside(contents) if isinstance(contents, dict | bool) else None

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
        if _COMPOSITION & reader.contents.keys():
            for keyword in _UNEVALUATED:
                rest = reader.part(keyword)
                if rest is not None and not rest.accepts_all():
                    yield from self._unchanged(reader, writer, keyword, path)
        reader, writer = self._without_unevaluated(reader), self._without_unevaluated(writer)
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

    def _without_unevaluated(self, schema: Located) -> Located:
        """Return a composed schema without ``unevaluatedProperties`` and ``unevaluatedItems``.

        They depend on all parts of the schema. In a schema without parts they have the meaning of
        ``additionalProperties`` and ``additionalItems``, and remain.
        """
        if not (_COMPOSITION & schema.contents.keys() and schema.contents.keys() & set(_UNEVALUATED)):
            return schema
        rest = {key: value for key, value in schema.contents.items() if key not in _UNEVALUATED}
        return schema.inside(self._one(rest))

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
        for group in _GROUPS:
            if one.keys() & set(group):
                other = {key: value for key, value in other.items() if key not in group}
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
            yield from self._unchanged(reader, writer, keyword, path)
        condition = reader.part("if")
        if condition is not None and not self._equal(condition, writer.part("if")):
            yield _changed(writer, "if", path)
        elif condition is not None:
            for keyword in ("then", "else"):
                yield from self._part(reader, writer, keyword, path)

    def _unchanged(
        self, reader: Located, writer: Located, keyword: str, path: str
    ) -> Iterator[Incompatibility]:
        if keyword in reader.contents and reader.get(keyword) != writer.get(keyword):
            yield _changed(writer, keyword, path)

    def _equal(self, one: Located, other: Located | None) -> bool:
        """Whether two schemas accept the same documents."""
        return other is not None and not self.compare(one, other, "") and not self.compare(other, one, "")

    def _part(self, reader: Located, writer: Located, keyword: str, path: str) -> list[Incompatibility]:
        """Compare the schemas in `keyword`, by default ``true``."""
        part = reader.part(keyword)
        if part is None:
            return []
        return self.compare(part, writer.part(keyword) or writer.inside(True), f"{path}/{keyword}")

    def _property(self, schema: Located, name: str) -> Located:
        """Return the schema for the property `name`.

        It has the property's schema in ``properties`` and those of all patterns in ``patternProperties`` that
        match the name. Without any, it is the schema of all other properties.
        """
        properties = schema.get("properties", {})
        found = [properties[name]] if name in properties else []
        for pattern, contents in schema.get("patternProperties", {}).items():
            self._steps.spend()
            if matcher(pattern).search(name):
                found.append(contents)
        if len(found) > 1:
            return schema.inside(self._one({"allOf": self._one(found)}))
        return schema.inside(found[0]) if found else _extra(schema)

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
        yield from self.compare(_extra(reader), _extra(writer), f"{path}/additionalProperties")
        yield from self._part(reader, writer, "propertyNames", path)
        for keyword in _DEPENDENCIES:
            dependents, before = _dependents(reader, keyword), _dependents(writer, keyword)
            for name, contents in dependents.items():
                needed = reader.inside(contents), writer.inside(before.get(name, True))
                yield from self.compare(*needed, f"{path}/{keyword}/{name}")

    def _arrays(self, reader: Located, writer: Located, path: str) -> Iterator[Incompatibility]:
        (first, rest), (first_before, rest_before) = _items(reader), _items(writer)
        for number in range(max(len(first), len(first_before))):
            item = first[number] if number < len(first) else rest
            before = first_before[number] if number < len(first_before) else rest_before
            yield from self.compare(reader.inside(item), writer.inside(before), f"{path}/items/{number}")
        yield from self.compare(reader.inside(rest), writer.inside(rest_before), f"{path}/items")
        contained = reader.part("contains")
        if contained is None:
            return
        if not self._equal(contained, writer.part("contains")):
            yield _changed(writer, "contains", path)
        for keyword, default, sign in (("minContains", 1, 1), ("maxContains", math.inf, -1)):
            limit, before = (_count(schema, keyword, default) for schema in (reader, writer))
            if sign * limit > sign * before:
                name = "MIN_CONTAINS_INCREASED" if sign > 0 else "MAX_CONTAINS_DECREASED"
                yield Incompatibility(name, f"{path}/{keyword}", f"{before} became {limit}")


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
    patterns = schema.get("patternProperties", {})
    return schema.inside(patterns[pattern]) if pattern in patterns else _extra(schema)


def _extra(schema: Located) -> Located:
    """Return the schema of properties that no other keyword describes."""
    own = schema.part("additionalProperties") or schema.part("unevaluatedProperties")
    return own or schema.inside(True)


def _dependents(schema: Located, keyword: str) -> dict[str, Any]:
    """Return the schemas that apply if a property exists, by its name. Other values are ignored."""
    given = schema.get(keyword)
    found: dict[str, Any] = {}
    for name, value in given.items() if isinstance(given, dict) else ():
        if isinstance(value, dict | bool):
            found[name] = value
        elif isinstance(value, list) and all(isinstance(other, str) for other in value):
            found[name] = {"required": value}
    return found


def _count(schema: Located, keyword: str, default: float) -> float:
    number = schema.get(keyword)
    return number if isinstance(number, int | float) else default


def _items(schema: Located) -> tuple[list[Any], Any]:
    """Return the schemas of an array's first items, one for each, and the schema of all later items."""
    others = schema.part("unevaluatedItems")
    otherwise = True if others is None else others.contents
    items, first = schema.get("items", otherwise), schema.get("prefixItems")
    if isinstance(items, list):  # up to draft 2019-09
        return items, schema.get("additionalItems", otherwise)
    is_known = isinstance(first, list) and all(isinstance(item, dict | bool) for item in first)
    return first if is_known else [], items


def _text(value: Any) -> str:
    # Python takes 1 for true, JSON does not.
    return json.dumps(value, sort_keys=True)


def _changed(writer: Located, keyword: str, path: str) -> Incompatibility:
    code = _code(keyword.removeprefix("$"), writer.get(keyword))
    return Incompatibility(code, f"{path}/{keyword}", f"{keyword} came or changed")


def _code(keyword: str, before: Any) -> str:
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", keyword).upper()
    return f"{name}_{'ADDED' if before is None else 'CHANGED'}"
