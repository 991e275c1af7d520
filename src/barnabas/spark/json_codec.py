"""Converts columns of registered JSON payloads to columns of records in Arrow, and back.

After the schema's id, a payload is JSON text, as Confluent's serializers write it. Payloads of any version
must conform to the reader's schema. Written rows must conform to the schema of the write.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import Draft7Validator, validator_for
from referencing.exceptions import Unresolvable

from barnabas.base.errors import ConfigError
from barnabas.client.schemas.json_schema import linked
from barnabas.client.schemas.registered import Registered
from barnabas.spark.json_columns import json_column
from barnabas.spark.payloads import FindWriter, PayloadDecoder, PayloadEncoder, RowUnfitError, Undecodable

#: characters of a validator's message
_SHOWN = 300


class JsonSchema:
    """A JSON Schema with the Arrow type of its objects.

    Raises ConfigError if the schema is invalid, or does not describe objects with properties.
    """

    def __init__(self, schema: Registered) -> None:
        try:
            contents = json.loads(schema.text)
            named = [(name, json.loads(text)) for name, text in schema.references]
            kind = validator_for(contents, default=Draft7Validator)
            kind.check_schema(contents)
            documents, uri = linked(contents, named)
        except (ValueError, AttributeError, SchemaError) as error:
            why = error.message if isinstance(error, SchemaError) else error
            raise ConfigError(f"not a JSON Schema ({why}): {schema.text}") from None
        self._validator = kind(contents, registry=documents)
        self.column = json_column(contents, documents.resolver(uri))
        if not pa.types.is_struct(self.column.arrow):
            raise ConfigError(f"rows are objects with properties, and the schema is {schema.text}")
        required = contents.get("required") or ()
        self.required = [each.name for each in self.column.arrow if each.name in required]

    def complaint(self, value: Any) -> str | None:
        """Return the reason why `value` does not conform to the schema; None if it conforms."""
        try:
            self._validator.validate(value)
        except ValidationError as error:
            return f"at /{'/'.join(map(str, error.absolute_path))}: {error.message[:_SHOWN]}"
        except (Unresolvable, RecursionError) as error:
            return f"{type(error).__name__}: {error}"
        return None


class Decoder(PayloadDecoder[None]):
    """Decodes JSON payloads that conform to the reader's schema. The writer's schema must be registered."""

    def __init__(
        self, reader: Registered, find_writer: FindWriter, column: pa.DataType | None = None
    ) -> None:
        """Create a decoder. Raises ConfigError if `reader` is not a JSON Schema of objects.

        `find_writer` is called with each new id in a payload, and returns the registered schema with
        this id. `column` is the type of the result's column; by default it follows from `reader`.
        """
        self._schema = JsonSchema(reader)
        self._find_writer = find_writer
        super().__init__(self._schema.column.arrow, column)

    def _writer(self, id_: int) -> None:
        self._find_writer(id_)

    def _record(self, payload: bytes, start: int, writer: None) -> Any:
        try:
            value = json.loads(payload[start:])
        except (ValueError, RecursionError) as error:
            raise Undecodable(f"it is not JSON: {error}") from None
        if complaint := self._schema.complaint(value):
            raise Undecodable(f"it does not fit the schema {complaint}")
        try:
            return self._schema.column.read(value)
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise Undecodable(f"its columns have no room for it: {error}") from None


class Encoder(PayloadEncoder):
    """Encodes records as payloads of JSON text without spaces."""

    def __init__(self, schema: Registered) -> None:
        """Create an encoder. Raises ConfigError if `schema` is not a JSON Schema of objects."""
        self._schema = JsonSchema(schema)
        arrow = self._schema.column.arrow
        super().__init__(arrow, arrow, schema.id, self._schema.required)

    def _content(self, row: dict[str, Any]) -> bytes:
        try:
            value = self._schema.column.write(row)
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        except ValueError as error:
            raise RowUnfitError(f"{row} is not JSON: {error}") from None
        if complaint := self._schema.complaint(value):
            raise RowUnfitError(f"the schema does not allow {row}: {complaint}")
        return text.encode()
