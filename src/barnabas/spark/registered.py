"""Encodes and decodes Avro, JSON Schema and Protobuf with a registry, as Confluent's serializers do.

The columns follow the reader's schema. The rules of the format convert records of other versions to this
schema. Spark's Python workers convert Arrow batches, in batch queries and in streams.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

from barnabas.base.errors import ConfigError
from barnabas.base.installation import pip_install
from barnabas.client.schemas.registered import (
    AVRO,
    JSON,
    PROTOBUF,
    Reference,
    Registered,
    by_id,
    latest,
    register,
)
from barnabas.client.schemas.registry import STEADY, SchemaRegistry
from barnabas.spark.option_values import invalid_option
from barnabas.spark.payloads import PayloadDecoder, PayloadEncoder

#: the registered formats: the registry's name, the codec's module, the extra that installs it
_FORMATS = {
    "avro": (AVRO, "barnabas.spark.avro_codec", "registry"),
    "jsonschema": (JSON, "barnabas.spark.json_codec", "registry"),
    "protobuf": (PROTOBUF, "barnabas.spark.protobuf_codec", "spark"),
}
REGISTERED = tuple(_FORMATS)

#: for Arrow's timestamps; PySpark 4.1 has it by default
_IN_UTC = {"timezone": "UTC"} if "timezone" in signature(to_arrow_type).parameters else {}


@dataclass(frozen=True)
class _Codec:
    """A format, its schema and the name of a Protobuf message. Executors get it pickled, and make codecs."""

    format: str
    schema: Registered
    #: name of the Protobuf message; empty for other formats, and for the first message
    message: str

    def decoder(self, registry: SchemaRegistry, column: pa.DataType | None = None) -> PayloadDecoder[Any]:
        find_writer = partial(by_id, registry, kind=self.schema.kind)
        made: PayloadDecoder[Any] = load_codec(self.format).Decoder(
            self.schema, find_writer, column, **self._more()
        )
        return made

    def encoder(self) -> PayloadEncoder:
        made: PayloadEncoder = load_codec(self.format).Encoder(self.schema, **self._more())
        return made

    def _more(self) -> dict[str, str]:
        return {"message": self.message} if self.format == "protobuf" else {}


def load_codec(format: str) -> Any:
    """Import and return the codec module of a registered format.

    Raises ConfigError if a package is missing.
    """
    _, module, extra = _FORMATS[format]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        hint = pip_install(extra)
        raise invalid_option("format", format, f"{error.name} is missing: {hint}") from None


def decode_registered(
    rows: DataFrame,
    format: str,
    *,
    registry: str,
    schema: str | None = None,
    subject: str | None = None,
    message: str = "",
    column: str = "value",
    record: str = "record",
    error: str = "error",
) -> DataFrame:
    """Decode the payloads in `column`: add the columns `record` and `error`.

    `record` is the decoded payload as a struct, and `error` the reason if it cannot be decoded. Both are NULL
    for a NULL payload, such as a tombstone.

    Args:
        format: avro, protobuf or jsonschema.
        registry: URL of the registry, which executors must also reach.
        schema: the reader's schema as JSON; for protobuf, a FileDescriptorProto in base64. If it is None, the
            present newest schema of `subject` is used.
        subject: the subject of the reader's schema; None if `schema` is given.
        message: for protobuf, the name of the message; by default the first one of the schema.

    Raises:
        ConfigError: both or none of `schema` and `subject` are given, the column does not exist or is not
            binary, no column can hold the schema's records, or the format's package is missing.
        RegistryRefused: the subject has no schema.
        SchemaError: the subject's schema has another format.
        RegistryError: the registry does not answer.
    """
    if (schema is None) == (subject is None):
        raise ConfigError(f"decode_{format}: give either schema or subject, to say which columns to make")
    if not isinstance(_type_of(rows, column), BinaryType):
        raise ConfigError(f"column {column} is {_type_of(rows, column).simpleString()}: payloads are binary")
    load_codec(format)
    client = SchemaRegistry(registry, timeouts=STEADY)
    kind = _FORMATS[format][0]
    reader = Registered(0, kind, schema) if schema is not None else latest(client, str(subject), kind)
    codec = _Codec(format, reader, message)
    made = _spark_type(codec.decoder(client).made)
    both = f"__{record}_{error}"
    return (
        rows.withColumn(both, _decoding(codec, registry, made)(F.col(f"`{column}`")))
        .withColumns({record: F.col(f"{both}.record"), error: F.col(f"{both}.error")})
        .drop(both)
    )


def encode_registered(
    rows: DataFrame,
    format: str,
    schema: str | None,
    *,
    registry: str,
    subject: str,
    message: str = "",
    references: Sequence[Reference] = (),
    into: str = "value",
    error: str = "",
    where: Column | None = None,
) -> DataFrame:
    """Encode each row as a payload, in the new column `into`. Columns are matched to fields by name.

    Args:
        format: avro, protobuf or jsonschema.
        schema: the schema, which is registered under `subject` if necessary; .proto text for protobuf. If it
            is None, the newest schema of `subject` is used.
        registry: URL of the registry; only the driver uses it.
        subject: the subject of the schema in the registry.
        message: for protobuf, the name of the message; by default the first one of the schema.
        references: schemas that `schema` refers to.
        error: name of a column to add, with the reason if the schema does not allow a row; the payload is
            then NULL. Without such a column the row fails the job.
        where: condition for encoding a row; if it is not true, the payload is NULL.

    Raises:
        ConfigError: the subject does not accept the schema, or a required field has no column.
        RegistryRefused: the subject has no schema.
        SchemaError: the subject's schema has another format.
        RegistryError: the registry does not answer.
    """
    load_codec(format)
    client = SchemaRegistry(registry, timeouts=STEADY)
    kind = _FORMATS[format][0]
    if schema is None:
        known = latest(client, subject, kind)
    elif references or format == "protobuf":
        known = by_id(client, register(client, subject, schema, kind, references), kind)
    else:
        known = Registered(0, kind, schema)
    fields = _fields(_Codec(format, known, message), rows)
    if not known.id and schema is not None:  # the columns fit it
        known = known._replace(id=register(client, subject, schema, kind))
    codec = _Codec(format, known, message)
    chosen = [F.col(f"`{name}`") for name in fields]
    row = F.struct(*chosen) if where is None else F.when(where, F.struct(*chosen))
    if not error:
        return rows.withColumn(into, _encoding(codec)(row))
    both = f"__{into}_{error}"
    return (
        rows.withColumn(both, _encoding_each(codec)(row))
        .withColumns({into: F.col(f"{both}.payload"), error: F.col(f"{both}.error")})
        .drop(both)
    )


@lru_cache(maxsize=32)
def _decoder(codec: _Codec, registry: str, column: pa.DataType) -> PayloadDecoder[Any]:
    """Return the decoder for these arguments. A second call with the same arguments returns the same decoder.

    So tasks in this process share the writers' schemas that the decoder caches."""
    return codec.decoder(SchemaRegistry(registry, timeouts=STEADY), column)


def _decoding(codec: _Codec, registry: str, made: DataType) -> Any:
    result = StructType([StructField("record", made), StructField("error", StringType())])
    arrow = to_arrow_type(result, **_IN_UTC)

    def decode(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        decoder = _decoder(codec, registry, arrow.field(0).type)
        for payloads in batches:
            yield pa.StructArray.from_arrays(decoder.decode(payloads), fields=[*arrow])

    return _udf(decode, result)


def _encoding(codec: _Codec) -> Any:
    def encode(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        encoder = codec.encoder()
        for records in batches:
            yield encoder.encode(records)

    return _udf(encode, BinaryType())


def _encoding_each(codec: _Codec) -> Any:
    result = StructType([StructField("payload", BinaryType()), StructField("error", StringType())])
    arrow = to_arrow_type(result, **_IN_UTC)

    def encode(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        encoder = codec.encoder()
        for records in batches:
            yield pa.StructArray.from_arrays(encoder.encode_each(records), fields=[*arrow])

    return _udf(encode, result)


def _udf(function: Any, result: DataType) -> Any:
    # The function's type hints tell Spark its kind. If it were deterministic, Spark would call it again for
    # each column that is selected from its result.
    return F.arrow_udf(function, result).asNondeterministic()


def _spark_type(arrow: pa.DataType) -> DataType:
    made: DataType = from_arrow_type(arrow, prefer_timestamp_ntz=True)
    return made


def _fields(codec: _Codec, rows: DataFrame) -> list[str]:
    """Return the names of the columns in `rows` that the schema has as fields.

    Raises ConfigError if a required field has no column, or no column is a field of the schema.
    """
    encoder = codec.encoder()
    names, there = encoder.names, rows.columns
    missing = [name for name in encoder.required if name not in there]
    if missing or not set(names) & set(there):
        raise ConfigError(
            f"the schema's fields {', '.join(missing or names)} have no default, and there are no such "
            f"columns (there are: {', '.join(there)})"
        )
    return [name for name in names if name in there]


def _type_of(rows: DataFrame, column: str) -> DataType:
    if column not in rows.columns:
        raise ConfigError(f"there is no column {column} (there are: {', '.join(rows.columns)})")
    found: DataType = rows.schema[column].dataType
    return found
