"""Converts columns of registered Avro payloads to columns of records in Arrow, and back."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.validation import ValidationError

from barnabas.base.errors import ConfigError
from barnabas.client.schemas.registered import Registered
from barnabas.spark.avro_types import arrow_type, without_logical_types
from barnabas.spark.payloads import FindWriter, PayloadDecoder, PayloadEncoder, RowUnfitError, Undecodable


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """An Avro schema, parsed for fastavro, with the Arrow types of its records."""

    #: the schema for fastavro, with dates and times as plain numbers
    parsed: Any
    #: JSON text that is equal for equal schemas
    form: str
    #: the Arrow type of a column of its records
    arrow: pa.DataType
    #: the same type, with dates and times as plain numbers
    raw: pa.DataType

    @classmethod
    def parse(cls, schema: Registered) -> AvroSchema:
        """Parse a schema.

        Raises ConfigError if `schema` is not Avro, or no column can hold its records.
        """
        parsed, names = _parse(schema, bare=False)
        bare, bare_names = _parse(schema, bare=True)
        form = json.dumps([bare, *(bare_names[name] for name in sorted(bare_names))], sort_keys=True)
        return cls(bare, form, arrow_type(parsed, names), arrow_type(bare, bare_names, raw=True))


def parse_writer(schema: Registered) -> tuple[Any, str]:
    """Return a writer's schema for fastavro, and JSON text that is equal for equal schemas.

    Raises ConfigError if `schema` is not Avro.
    """
    bare, names = _parse(schema, bare=True)
    return bare, json.dumps([bare, *(names[name] for name in sorted(names))], sort_keys=True)


def _parse(schema: Registered, *, bare: bool) -> tuple[Any, dict[str, Any]]:
    names: dict[str, Any] = {}
    parsed: Any = None
    try:
        for text in (*(text for _, text in schema.references), schema.text):
            form = json.loads(text)
            # The registry has checked the defaults; fastavro rejects 0 for a double with properties.
            parsed = fastavro.parse_schema(
                without_logical_types(form) if bare else form, names, _ignore_default_error=True
            )
    except (ValueError, TypeError, KeyError, fastavro.schema.SchemaParseException) as error:
        raise ConfigError(f"not an Avro schema ({error}): {schema.text}") from None
    return parsed, names


class Decoder(PayloadDecoder[tuple[Any, Any]]):
    """Decodes Avro payloads to records of the reader's schema.

    It caches the parsed writers' schemas. If a writer's schema differs from the reader's, fastavro reads with
    both, and so converts the records to the reader's schema.
    """

    def __init__(
        self, reader: Registered, find_writer: FindWriter, column: pa.DataType | None = None
    ) -> None:
        """Create a decoder.

        Args:
            reader: the Avro schema of the decoded records.
            find_writer: is called with each new schema id in a payload, and returns the registered schema
                with this id.
            column: the Arrow type of the result; None for the type that follows from `reader`.

        Raises:
            ConfigError: `reader` is not Avro, or its records have no column type.
        """
        self._reader = AvroSchema.parse(reader)
        self._find_writer = find_writer
        super().__init__(self._reader.arrow, column)

    def _writer(self, id_: int) -> tuple[Any, Any]:
        parsed, form = parse_writer(self._find_writer(id_))
        # Reading without resolution costs a quarter.
        return parsed, None if form == self._reader.form else self._reader.parsed

    def _record(self, payload: bytes, start: int, writer: tuple[Any, Any]) -> Any:
        stream = io.BytesIO(payload)
        stream.seek(start)
        try:
            record = fastavro.schemaless_reader(stream, *writer)
        except Exception as error:  # what fastavro raises on bytes that do not fit is of any kind
            raise Undecodable(f"it does not fit its schema: {type(error).__name__}: {error}") from None
        if stream.tell() != len(payload):
            raise Undecodable(f"{len(payload) - stream.tell()} bytes are left over behind the record")
        return record


class Encoder(PayloadEncoder):
    """Encodes records as payloads in Avro's binary encoding."""

    def __init__(self, schema: Registered) -> None:
        """Create an encoder.

        Raises ConfigError if `schema` is not an Avro record, or no column can hold the record.
        """
        self._schema = AvroSchema.parse(schema)
        parsed = self._schema.parsed
        if not isinstance(parsed, dict) or parsed["type"] != "record":
            raise ConfigError(f"rows are records, and the schema is {json.dumps(parsed)}")
        required = [field["name"] for field in parsed["fields"] if "default" not in field]
        super().__init__(self._schema.arrow, self._schema.raw, schema.id, required)

    def _content(self, row: dict[str, Any]) -> bytes:
        stream = io.BytesIO()
        try:
            fastavro.schemaless_writer(stream, self._schema.parsed, row)
        except Exception as error:
            why = f"{self._unfit_field(row)}{type(error).__name__}: {error}"
            raise RowUnfitError(f"the schema does not allow {row}: {why}") from None
        return stream.getvalue()

    def _unfit_field(self, row: dict[str, Any]) -> str:
        """Return ``field NAME: `` for the first field of `row` that the schema does not allow.

        Return an empty text if the schema allows all fields.
        """
        try:
            fastavro.validate(row, self._schema.parsed, raise_errors=True)
        except ValidationError as error:
            return f"field {error.errors[0].field}: "
        return ""
