"""Registered JSON Schema: a payload is JSON text that the schema accepts."""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from barnabas.base.text import shown
from barnabas.client.schemas.registered import Registered
from barnabas.client.schemas.unfit import UnfitError, inside

if TYPE_CHECKING:
    from referencing import Registry, Resource

#: the base URI of a schema without $id
_HERE = "urn:barnabas:schema"
_MAX_COMPLAINT = 300
_MAX_PART = 200


class JsonSchema:
    """Reads and writes values of one JSON Schema (draft 4 to 2020-12): JSON without magic byte and id."""

    def __init__(self, schema: Registered) -> None:
        self._schema = schema

    def read(self, data: bytes) -> Any:
        """Return the value of JSON text, without a check by the schema.

        Raises ValueError if the bytes are not JSON.
        """
        return json.loads(data)

    def write(self, value: Any, path: str) -> bytes:
        """Return a value as JSON text, if the schema allows the value.

        `path` names the value in the text of an error.

        Raises:
            UnfitError: the schema does not allow the value, or the value cannot be written as JSON in UTF-8.
                For example, it contains NaN or an infinite number.
            ValueError: the schema is no JSON Schema, or a reference in it is not known.
        """
        from jsonschema.exceptions import best_match
        from referencing.exceptions import Unresolvable

        try:
            text = _text(value, path)  # first, because a validator fails at NaN
            error = best_match(self._validator.iter_errors(value))
            if error is not None:
                for step in error.absolute_path:
                    path = inside(path, step)
                part = shown(json.dumps(error.schema, ensure_ascii=False), _MAX_PART)
                complaint = shown(error.message, _MAX_COMPLAINT)
                raise UnfitError(f"{path}: {complaint}; the schema of it is {part}")
            return text.encode()
        except RecursionError:
            raise UnfitError(f"{path}: it is nested too deeply") from None
        except UnicodeEncodeError:
            raise UnfitError(f"{path}: it has half of a surrogate pair; write whole characters") from None
        except (Unresolvable, re.error) as error:
            raise ValueError(f"it cannot be applied: {error}") from None

    @cached_property
    def _validator(self) -> Any:
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import Draft7Validator, validator_for

        contents = json.loads(self._schema.text)
        kind = validator_for(contents, default=Draft7Validator)
        try:
            kind.check_schema(contents)
        except SchemaError as error:
            raise ValueError(shown(error.message)) from None
        named = [(name, json.loads(text)) for name, text in self._schema.references]
        documents, _ = linked(contents, named)
        return kind(contents, registry=documents)


def _text(value: Any, path: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UnfitError(f"{path}: it is not JSON: {error}") from None


def linked(contents: Any, named: list[tuple[str, Any]]) -> tuple[Registry[Any], str]:
    """Return a registry with a schema and the documents of its references, and the schema's URI in it.

    The URI is the schema's ``$id``, or ``urn:barnabas:schema`` without ``$id``.

    Args:
        contents: the schema, as a JSON value.
        named: for each reference, the name that ``$ref`` uses, and the document.

    Raises:
        ValueError: an ``$id`` is not a URI.
    """
    from referencing import Registry

    own = _resource(contents)
    uri = own.id() or _HERE
    resources = [*((name, _resource(each)) for name, each in named), (uri, own)]
    documents: Registry[Any] = Registry().with_resources(resources)
    return documents.crawl(), uri  # once, not for each reference


def _resource(contents: Any) -> Resource[Any]:
    from referencing import Resource
    from referencing.jsonschema import DRAFT7

    return Resource.from_contents(contents, default_specification=DRAFT7)
