"""Parses schemas of all formats, with the same interface for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, Protocol

from barnabas.base.installation import pip_install
from barnabas.registry.avro import AvroSchema
from barnabas.registry.errors import InvalidSchemaError
from barnabas.registry.incompatibility import Incompatibility
from barnabas.registry.jsonschema import JsonSchema
from barnabas.registry.protobuf import ProtobufSchema
from barnabas.registry.schema import AVRO, JSON, PROTOBUF, Schema


class Parsed(Protocol):
    """A parsed schema. `text` is its canonical form: equal texts mean the same schema."""

    text: str

    def cannot_read(self, written: Any) -> list[Incompatibility]:
        """Return the reasons why this schema cannot read data of the schema `written`; empty if it can.

        Both schemas have the same format. Raises TooLargeError if the comparison takes too many steps.
        """
        ...


_FORMATS: dict[str, Callable[..., Parsed]] = {JSON: JsonSchema, PROTOBUF: ProtobufSchema, AVRO: AvroSchema}


def types() -> list[str]:
    """Return the supported schema types: Protobuf only if its compiler is installed."""
    return [name for name in _FORMATS if name != PROTOBUF or _protoc_installed()]


def parse(
    schema: Schema,
    references: Sequence[tuple[str, str]] = (),
    *,
    normalize: bool = False,
    is_new: bool = False,
) -> Parsed:
    """Parse `schema`. This may block for long, so only worker processes call it (`worker.py`).

    `references` has the name and the text of each schema that `schema` refers to, directly or indirectly. A
    referenced schema comes after the schemas that it refers to itself. With `normalize`, parts of the
    canonical text whose order has no meaning are sorted. With `is_new`, the default values of Avro fields are
    checked; earlier versions of the registry stored schemas with defaults that this check rejects.

    Raises:
        InvalidSchemaError: the schema breaks the rules of its format, or the format is not supported.
        TooLargeError: the schema exceeds a limit.
        RegistryError: OPERATION_TIMEOUT or STORE_ERROR, protoc takes too long or crashes.
        RecursionError: the schema is nested too deeply.
    """
    if schema.type not in _FORMATS:
        raise InvalidSchemaError(f"type {schema.type} is not served: use one of {', '.join(types())}")
    if schema.type == PROTOBUF and not _protoc_installed():
        raise InvalidSchemaError(
            "type PROTOBUF takes protoc, which this registry does not have: install it there with "
            f"{pip_install('protobuf')}"
        )
    parsed = _FORMATS[schema.type](schema.text, references, normalize=normalize)
    if is_new and isinstance(parsed, AvroSchema):
        parsed.check_defaults()
    return parsed


def _protoc_installed() -> bool:
    try:
        return all(find_spec(name) is not None for name in ("grpc_tools", "google.protobuf", "google.type"))
    except ModuleNotFoundError:  # no package google at all
        return False
