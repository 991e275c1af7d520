"""Parses and compares JSON Schemas, with the packages `jsonschema` and `referencing`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from barnabas.client.schemas.json_schema import linked
from barnabas.registry.document import Elements
from barnabas.registry.errors import InvalidSchemaError
from barnabas.registry.incompatibility import Incompatibility

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
        from jsonschema.validators import Draft7Validator, validator_for

        elements = Elements()
        self._contents = _load(schema, elements)
        try:
            validator_for(self._contents, default=Draft7Validator).check_schema(self._contents)
        except SchemaError as error:
            place = "/".join(map(str, error.absolute_path))
            raise InvalidSchemaError(f"at /{place}: {error.message}") from None
        except OverflowError as error:  # a repetition in a regular expression, above the limit of `re`
            raise InvalidSchemaError(str(error)) from None
        named = [(name, _load(text, elements)) for name, text in references]
        try:
            documents, own_id = linked(self._contents, named)
        except ValueError as error:
            raise InvalidSchemaError(f"an $id is not a URI: {error}") from None
        self._resolver = documents.resolver(own_id)
        self._check_references()
        self.text = json.dumps(self._contents, ensure_ascii=False, separators=(",", ":"), sort_keys=normalize)

    def cannot_read(self, written: JsonSchema) -> list[Incompatibility]:
        """Return the reasons why this schema may reject documents that `written` accepts.

        The list is empty if this schema accepts all of these documents. Raises TooLargeError if the
        comparison takes too many steps, and InvalidSchemaError if a ``$ref`` cannot be resolved.
        """
        from barnabas.registry.jsonschema.compatibility import Located, rejections

        return rejections(
            Located(self._contents, self._resolver), Located(written._contents, written._resolver)
        )

    def _check_references(self) -> None:
        from referencing.exceptions import Unresolvable

        for reference in _references(self._contents):
            try:
                self._resolver.lookup(reference)
            except (Unresolvable, ValueError) as error:
                raise InvalidSchemaError(f"$ref {reference} leads nowhere: {error}") from None


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


def _references(contents: Any) -> Iterator[str]:
    """Yield every ``$ref`` whose base URI is that of the schema, also absolute ones.

    Skip subschemas with an ``$id`` of their own. Also skip ``enum``, ``const``, ``default`` and ``examples``,
    because their values are not schemas.
    """
    values: Iterable[Any] = ()
    if isinstance(contents, dict):
        if isinstance(contents.get("$ref"), str):
            yield contents["$ref"]
        values = (value for key, value in contents.items() if key not in _NO_SCHEMAS)
    elif isinstance(contents, list):
        values = contents
    for value in values:
        if not (isinstance(value, dict) and "$id" in value):
            yield from _references(value)
