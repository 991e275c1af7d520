"""Registered Avro in Arrow: columns of payloads to columns of records, and back.

A payload is a zero byte, the schema's id (4 bytes, big-endian) and the record in Avro's binary encoding, as
Confluent's serializers write it.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa
from pyarrow.compute import CastOptions

from barnabas.errors import BarnabasError, ConfigError
from barnabas.spark.avro_types import arrow_type, without_logical_types
from barnabas.spark.registry_client import RegisteredSchema, RegistryClient, UnknownSchemaError

_MAGIC = 0
_HEADER = 5


class RowUnfitError(BarnabasError):
    """A row that the schema does not allow."""


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema as fastavro reads and writes with it, with dates and times as numbers."""

    parsed: Any
    #: what tells two schemas apart
    form: str
    #: what a column of its records looks like
    arrow: pa.DataType
    #: the same with dates and times as numbers
    raw: pa.DataType

    @classmethod
    def parse(cls, schema: RegisteredSchema) -> AvroSchema:
        """Raises ConfigError when it is no Avro schema, or no column can hold its records."""
        parsed, names = _parse(schema, bare=False)
        bare, bare_names = _parse(schema, bare=True)
        form = json.dumps([bare, *(bare_names[name] for name in sorted(bare_names))], sort_keys=True)
        return cls(bare, form, arrow_type(parsed, names), arrow_type(bare, bare_names, raw=True))


def parse_writer(schema: RegisteredSchema) -> tuple[Any, str]:
    """A schema that records were written with, for fastavro, and what tells it from others."""
    bare, names = _parse(schema, bare=True)
    return bare, json.dumps([bare, *(names[name] for name in sorted(names))], sort_keys=True)


def _parse(schema: RegisteredSchema, *, bare: bool) -> tuple[Any, dict[str, Any]]:
    names: dict[str, Any] = {}
    parsed: Any = None
    try:
        for text in (*schema.references, schema.text):
            form = json.loads(text)
            parsed = fastavro.parse_schema(without_logical_types(form) if bare else form, names)
    except (ValueError, TypeError, KeyError, fastavro.schema.SchemaParseException) as error:
        raise ConfigError(f"not an Avro schema ({error}): {schema.text}") from None
    return parsed, names


class Decoder:
    """Makes records of payloads, in the columns of one reader's schema, whatever they were written with."""

    def __init__(
        self, reader: RegisteredSchema, registry: RegistryClient, column: pa.DataType | None = None
    ) -> None:
        """`column` is the type of the records' column where it is not the schema's own."""
        self._reader = AvroSchema.parse(reader)
        self._type = column or self._reader.arrow
        self._registry = registry
        #: the writers' schemas by id, each with the reader's when records need resolution
        self._writers: dict[int, tuple[Any, Any]] = {}

    def decode(self, payloads: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Records and reasons: of each pair at least one is NULL, both when the payload is.

        Raises:
            RegistryUnavailableError: the registry does not answer, which is not the payload's fault.
        """
        unknown: dict[int, str] = {}
        records: list[Any] = []
        reasons: list[str | None] = []
        for payload in payloads.to_pylist():
            record = reason = None
            if payload is not None:
                try:
                    record = self._decode(payload, unknown)
                except _Undecodable as error:
                    reason = str(error)
            records.append(record)
            reasons.append(reason)
        try:
            column = self._column(records)
        except pa.ArrowException:
            for number, record in enumerate(records):
                try:
                    self._column([record])
                except pa.ArrowException as error:
                    records[number] = None
                    reasons[number] = f"its columns have no room for it: {error}"
            column = self._column(records)
        return column, pa.array(reasons, pa.string())

    def _column(self, records: list[Any]) -> pa.Array:
        return pa.array(records, self._reader.arrow).cast(self._type)

    def _decode(self, payload: bytes, unknown: dict[int, str]) -> Any:
        if len(payload) < _HEADER or payload[0] != _MAGIC:
            raise _Undecodable(
                f"not a registered payload: it begins with {payload[:_HEADER].hex(' ') or 'nothing'}, "
                "not with 00 and a schema's id"
            )
        writer, reader = self._schemas(int.from_bytes(payload[1:_HEADER], "big"), unknown)
        stream = io.BytesIO(payload)
        stream.seek(_HEADER)
        try:
            record = fastavro.schemaless_reader(stream, writer, reader)
        except Exception as error:  # what fastavro raises on bytes that do not fit is of any kind
            raise _Undecodable(f"it does not fit its schema: {type(error).__name__}: {error}") from None
        if stream.tell() != len(payload):
            raise _Undecodable(f"{len(payload) - stream.tell()} bytes are left over behind the record")
        return record

    def _schemas(self, id_: int, unknown: dict[int, str]) -> tuple[Any, Any]:
        if id_ in unknown:
            raise _Undecodable(unknown[id_])
        if id_ not in self._writers:
            try:
                parsed, form = parse_writer(self._registry.by_id(id_))
            except (UnknownSchemaError, ConfigError) as error:
                # Remembered for this batch only: it may be registered by the next.
                unknown[id_] = str(error)
                raise _Undecodable(str(error)) from None
            # Reading without resolution costs a quarter.
            self._writers[id_] = parsed, None if form == self._reader.form else self._reader.parsed
        return self._writers[id_]


class Encoder:
    """Makes payloads of records, all with one registered schema."""

    def __init__(self, schema: RegisteredSchema, id_: int) -> None:
        self._schema = AvroSchema.parse(schema)
        self._header = bytes([_MAGIC]) + id_.to_bytes(4, "big")

    def encode(self, records: pa.Array) -> pa.Array:
        """The payload of each record; NULL where all of it is NULL.

        Raises:
            RowUnfitError: the schema does not allow a record; says which, and why.
        """
        present = {records.type.field(index).name for index in range(records.type.num_fields)}
        typed = pa.struct([f for f in self._schema.arrow if f.name in present])
        raw = pa.struct([f for f in self._schema.raw if f.name in present])
        # Microseconds that milliseconds have no room for are cut off, as by Spark's to_avro; nothing else is.
        try:
            column = records.cast(options=CastOptions(typed, allow_time_truncate=True)).cast(raw)
        except pa.ArrowInvalid as error:
            raise RowUnfitError(f"the schema does not allow a value of a row: {error}") from None
        # Asked for dicts, Arrow takes ten times as long also where there are no maps.
        rows = column.to_pylist(maps_as_pydicts="strict") if "map<" in str(raw) else column.to_pylist()
        return pa.array([None if row is None else self._encode(row) for row in rows], pa.binary())

    def _encode(self, row: dict[str, Any]) -> bytes:
        stream = io.BytesIO()
        stream.write(self._header)
        try:
            fastavro.schemaless_writer(stream, self._schema.parsed, row)
        except Exception as error:
            raise RowUnfitError(f"the schema does not allow {row}: {type(error).__name__}: {error}") from None
        return stream.getvalue()


class _Undecodable(Exception):
    """Why one payload is no record."""
