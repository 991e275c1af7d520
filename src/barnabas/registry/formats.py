"""The formats of schemas that a registry takes, behind one interface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from barnabas.registry.avro import AvroSchema
from barnabas.registry.errors import InvalidSchemaError
from barnabas.registry.incompatibility import Incompatibility
from barnabas.registry.jsonschema import JsonSchema
from barnabas.registry.schema import AVRO, JSON, Schema


class Parsed(Protocol):
    """A schema that has been understood; `text` is the one spelling of all that mean the same."""

    text: str

    def cannot_read(self, written: Any) -> list[Incompatibility]:
        """Why data of the schema `written`, of the same format, cannot be read with this one."""
        ...


_FORMATS: dict[str, Callable[..., Parsed]] = {JSON: JsonSchema, AVRO: AvroSchema}

TYPES = tuple(_FORMATS)


def parse(schema: Schema, references: Sequence[tuple[str, str]] = (), *, normalize: bool = False) -> Parsed:
    """Understand `schema`; `references` are names and texts, what is referred to before what refers to it.

    Raises:
        InvalidSchemaError: it breaks its format's rules, or its format is not served.
    """
    if schema.type not in _FORMATS:
        raise InvalidSchemaError(f"type {schema.type} is not served: use one of {', '.join(TYPES)}")
    try:
        return _FORMATS[schema.type](schema.text, references, normalize=normalize)
    except RecursionError:
        raise InvalidSchemaError("it is nested too deeply") from None
