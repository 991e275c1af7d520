"""Reads and writes payloads of registered schemas in every format."""

from __future__ import annotations

import json
import math
from typing import Any, Protocol

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.installation import pip_install
from barnabas.base.text import shown
from barnabas.client.schemas.registered import AVRO, JSON, PROTOBUF, Registered, SchemaError
from barnabas.client.schemas.unfit import UnfitError

_MAGIC = 0
#: bytes of a payload before the schema's format begins: the magic byte and the id
PREFIX = 5


class Codec(Protocol):
    """Reads and writes values in the format of one schema, without a payload's magic byte and schema id."""

    def read(self, data: bytes) -> Any:
        """Decode a value in the schema's format, without magic byte and schema id.

        Raises an exception of any type if the bytes do not fit the schema.
        """
        ...

    def write(self, value: Any, path: str) -> bytes:
        """Return a JSON value in the schema's format, without magic byte and schema id.

        `path` names the value in the text of an error.

        Raises:
            UnfitError: the schema does not allow the value.
            ValueError: the schema cannot be used.
        """
        ...


def codec_of(schema: Registered, message: str = "") -> Codec:
    """Return the codec of a schema.

    Args:
        message: name of the Protobuf message to write; by default the first one.

    Raises:
        SchemaError: the schema is not valid in its format, or its format is not known.
        ConfigError: a package that the format needs is not installed.
    """
    try:
        if schema.kind == AVRO:
            from barnabas.client.schemas.avro import AvroSchema

            return AvroSchema(schema)
        if schema.kind == JSON:
            from barnabas.client.schemas.json_schema import JsonSchema

            return JsonSchema(schema)
        if schema.kind == PROTOBUF:
            from barnabas.client.schemas.protobuf import ProtobufSchema

            return ProtobufSchema(schema, message)
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    except Exception as error:  # a library's complaint about a schema may be of any type
        raise _unusable(schema, error) from None
    raise SchemaError(
        f"schema {schema.id} is of the format {shown(schema.kind, 40)}; {AVRO}, {JSON} and {PROTOBUF} "
        "are known"
    )


class Encoder:
    """Turns JSON values into payloads of one schema.

    Args:
        message: name of the Protobuf message to write; by default the first one.
        path: name of the value in error messages: "value" or "key".

    Raises:
        SchemaError: the schema is not valid, its format is not known, or `message` is set for a format
            without messages.
        ConfigError: a package that the format needs is not installed.
    """

    def __init__(self, schema: Registered, message: str = "", path: str = "value") -> None:
        if message and schema.kind != PROTOBUF:
            raise SchemaError(f"schema {schema.id} is of the format {schema.kind}, which has no messages")
        self._schema = schema
        self._codec = codec_of(schema, message)
        self._path = path

    def encode(self, value: Any) -> bytes:
        """Return the payload of a JSON value: the magic byte, the schema's id, and the encoded value.

        Raises:
            UnfitError: the schema does not allow the value.
            SchemaError: the schema cannot be used.
            ConfigError: a package that the format needs is not installed.
        """
        try:
            content = self._codec.write(value, self._path)
        except (BarnabasError, MemoryError):
            raise
        except ModuleNotFoundError as error:
            raise _missing(error) from None
        except Exception as error:
            raise _unusable(self._schema, error) from None
        return prefix(self._schema.id) + content

    def encode_text(self, text: str | bytes) -> bytes:
        """Return the payload of a JSON text: the magic byte, the schema's id, and the encoded value.

        Raises:
            UnfitError: the text is not JSON in UTF-8, or the schema does not allow the value.
            SchemaError: the schema cannot be used.
            ConfigError: a package that the format needs is not installed.
        """
        try:
            value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        except RecursionError:
            raise UnfitError(f"{self._path}: it is nested too deeply") from None
        except UnicodeDecodeError:
            raise UnfitError(f"{self._path}: it is not UTF-8") from None
        except ValueError as error:
            raise UnfitError(f"{self._path}: it is not JSON: {error}") from None
        return self.encode(value)


def schema_id(data: bytes) -> int | None:
    """Return the schema id at the start of a payload; None if `data` begins with no magic byte and id."""
    if len(data) < PREFIX or data[0] != _MAGIC:
        return None
    return int.from_bytes(data[1:PREFIX], "big")


def prefix(id_: int) -> bytes:
    """Return the magic byte and a schema's id, with which a payload begins."""
    return bytes([_MAGIC]) + id_.to_bytes(PREFIX - 1, "big")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:40]} is too large a number")
    return number


def _missing(error: ModuleNotFoundError) -> ConfigError:
    return ConfigError(f"the schema needs the package {error.name}: install it with {pip_install('console')}")


def _unusable(schema: Registered, error: Exception) -> SchemaError:
    reason = shown(" ".join(str(error).split()) or type(error).__name__)
    return SchemaError(f"schema {schema.id} ({shown(schema.kind, 40)}) cannot be used: {reason}")
