"""Parses and compares JSON Schemas, with the packages `jsonschema` and `referencing`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from barnabas.client.schemas.json_schema import linked
from barnabas.registry.document import Elements
from barnabas.registry.errors import InvalidSchemaError
from barnabas.registry.incompatibility import Incompatibility

if TYPE_CHECKING:
    from referencing import Registry

__all__ = ["JsonSchema"]

#: keywords whose values are not schemas
_NO_SCHEMAS = ("enum", "const", "default", "examples")


class JsonSchema:
    """A parsed JSON Schema (draft 4 to 2020-12). `text` is its canonical form.

    `references` has pairs of name and text. ``$ref`` can refer to these names. With `normalize`, the keys of
    all objects in `text` are sorted.

    Raises:
        InvalidSchemaError: the text is not JSON, not a JSON Schema, or has an unknown reference.
        TooLargeError: the schema has more elements than the limit.
    """

    def __init__(self, schema: str, references: Sequence[tuple[str, str]] = (), *, normalize: bool = False):
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import (
            Draft7Validator,
            Draft201909Validator,
            Draft202012Validator,
            validator_for,
        )

        elements = Elements()
        self._contents = _load(schema, elements)
        try:
            draft = validator_for(self._contents, default=Draft7Validator)
            draft.check_schema(self._contents)
        except SchemaError as error:
            path = "/".join(map(str, error.absolute_path))
            raise InvalidSchemaError(f"at /{path}: {error.message}") from None
        except OverflowError as error:  # a repetition in a regular expression, above the limit of `re`
            raise InvalidSchemaError(str(error)) from None
        named = [(name, _load(text, elements)) for name, text in references]
        try:
            documents, own_id = linked(self._contents, named)
        except ValueError as error:
            raise InvalidSchemaError(f"an $id is not a URI: {error}") from None
        self._resolver = documents.resolver(own_id)
        self.text = json.dumps(self._contents, ensure_ascii=False, separators=(",", ":"), sort_keys=normalize)
        # The comparison merges parts that have different base URIs.
        _make_absolute(self._contents, own_id, documents, must_exist=True)
        for name, contents in named:
            _make_absolute(contents, name, documents)
        for contents in (self._contents, *(contents for _, contents in named)):
            if validator_for(contents, default=draft) in (Draft201909Validator, Draft202012Validator):
                _move_references(contents)

    def cannot_read(self, written: JsonSchema) -> list[Incompatibility]:
        """Return the reasons why this schema may reject documents that `written` accepts.

        The list is empty if this schema accepts all of these documents. Raises TooLargeError if the
        comparison takes too many steps, and InvalidSchemaError if a ``$ref`` cannot be resolved.
        """
        from barnabas.registry.jsonschema.compatibility import Located, rejections

        return rejections(
            Located(self._contents, self._resolver), Located(written._contents, written._resolver)
        )


def _load(schema: str, elements: Elements) -> Any:
    try:
        contents = elements.load(schema)
    except ValueError as error:
        raise InvalidSchemaError(f"it is not JSON: {error}") from None
    if not isinstance(contents, dict | bool):
        raise InvalidSchemaError("a JSON Schema is an object, or true or false")
    if isinstance(contents, dict) and not isinstance(contents.get("$schema", ""), str):
        raise InvalidSchemaError("$schema is not a string")
    return contents


def _make_absolute(contents: Any, base: str, documents: Registry[Any], *, must_exist: bool = False) -> None:
    """Replace every ``$ref`` in `contents` by its absolute URI.

    Skip ``enum``, ``const``, ``default`` and ``examples``, because their values are not schemas. Also skip a
    ``$ref`` without a target.

    Args:
        contents: the schema, as a JSON value.
        base: the schema's base URI. A part with an own ``$id`` (``id`` in draft 4) has another one.
        documents: the schema and the documents of its references, with all their parts that have an own URI.
        must_exist: whether a missing target of a ``$ref`` raises InvalidSchemaError. It raises no error
            inside of a part with another base URI.
    """
    from referencing.exceptions import Unresolvable

    values: Iterable[Any] = ()
    if isinstance(contents, dict):
        own_base = _own_base(contents, base, documents)
        base, must_exist = own_base, must_exist and own_base == base
        reference = contents.get("$ref")
        if isinstance(reference, str):
            try:
                # `urljoin` knows no fragments of a urn:
                target = base + reference if reference.startswith("#") else urljoin(base, reference)
                documents.resolver(base).lookup(target)
                contents["$ref"] = target
            except (Unresolvable, ValueError) as error:
                if must_exist:
                    raise InvalidSchemaError(f"$ref {reference} leads nowhere: {error}") from None
        values = (value for key, value in contents.items() if key not in _NO_SCHEMAS)
    elif isinstance(contents, list):
        values = contents
    for value in values:
        _make_absolute(value, base, documents, must_exist=must_exist)


def _move_references(contents: Any) -> None:
    """Move each ``$ref`` with keywords beside it into ``allOf``, which has the same meaning since 2019-09.

    The keywords remain where they are, so that the pointers of other references still find them.
    """
    values: Iterable[Any] = ()
    if isinstance(contents, dict):
        reference, parts = contents.get("$ref"), contents.get("allOf", [])
        if isinstance(reference, str) and len(contents) > 1 and isinstance(parts, list):
            del contents["$ref"]
            contents["allOf"] = [*parts, {"$ref": reference}]
        values = (value for key, value in contents.items() if key not in _NO_SCHEMAS)
    elif isinstance(contents, list):
        values = contents
    for value in values:
        _move_references(value)


def _own_base(contents: dict[str, Any], base: str, documents: Registry[Any]) -> str:
    """Return the base URI of a part of a schema: its own URI if `documents` have one, else `base`."""
    for own in (contents.get("$id"), contents.get("id")):
        if not isinstance(own, str):
            continue
        try:
            uri = urljoin(base, own).rstrip("#")
        except ValueError:
            continue
        part = documents.get(uri)
        if part is not None and part.contents is contents:
            return uri
    return base
