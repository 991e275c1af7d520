"""Registered Avro in DataFrames: what Confluent's serializers write is read, and they read what is written.

    from barnabas.spark.avro import dead_letters, decode_avro, encode_avro

    orders = decode_avro(topic_rows, registry="http://127.0.0.1:8081", subject="orders-value")
    good = orders.where("error IS NULL").select("record.*")
    bad = dead_letters(orders)          # to a topic of their own, each with its reason

The columns are those of one schema, the reader's; records that were written with other versions of it are
resolved to it by Avro's rules. The work is done in Arrow batches by fastavro, in batch and in streams alike.
It needs `pip install 'barnabas[spark,registry]'`, on the executors too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

from barnabas.errors import ConfigError
from barnabas.spark.avro_codec import AvroSchema, Decoder, Encoder
from barnabas.spark.dead_letters import letters
from barnabas.spark.registry_client import RegisteredSchema, RegistryClient


def decode_avro(
    rows: DataFrame,
    *,
    registry: str,
    schema: str | None = None,
    subject: str | None = None,
    column: str = "value",
    record: str = "record",
    error: str = "error",
) -> DataFrame:
    """Add the columns `record`, what the payload in `column` says, and `error`, why it says nothing.

    A payload that is NULL, such as a tombstone, has neither.

    Args:
        registry: the registry's URL, which executors must reach too.
        schema: the reader's schema as JSON; else the newest one of `subject` is taken, once, now.

    Raises:
        ConfigError: there is no such column, or no column can hold the schema's records.
        UnknownSchemaError: the subject has no schema.
        RegistryUnavailableError: the registry does not answer.
    """
    if (schema is None) == (subject is None):
        raise ConfigError("decode_avro: give either schema or subject, to say which columns to make")
    if not isinstance(_type_of(rows, column), BinaryType):
        raise ConfigError(f"column {column} is {_type_of(rows, column).simpleString()}: payloads are binary")
    client = RegistryClient(registry)
    reader = RegisteredSchema(schema) if schema is not None else client.latest(str(subject))
    made = _spark_type(AvroSchema.parse(reader).arrow)
    decoded = _decoding(reader, registry, made)(rows[column])
    both = f"__{record}_{error}"
    return (
        rows.withColumn(both, decoded)
        .withColumns({record: F.col(f"{both}.record"), error: F.col(f"{both}.error")})
        .drop(both)
    )


def encode_avro(
    rows: DataFrame, schema: str, *, registry: str, subject: str, into: str = "value"
) -> DataFrame:
    """Add the column `into` with each row as a payload: its columns by the names of the schema's fields.

    The schema is registered under `subject` when it is not yet. A row that it does not allow fails the job.

    Raises:
        ConfigError: the subject does not take the schema, or a field without a default has no column.
        RegistryUnavailableError: the registry does not answer.
    """
    parsed = RegisteredSchema(schema)
    fields = _fields(AvroSchema.parse(parsed))
    missing = [f["name"] for f in fields if f["name"] not in rows.columns and "default" not in f]
    if missing:
        raise ConfigError(
            f"the schema's fields {', '.join(missing)} have no default, and there are no such columns "
            f"(there are: {', '.join(rows.columns)})"
        )
    id_ = RegistryClient(registry).register(subject, schema)
    chosen = [rows[field["name"]] for field in fields if field["name"] in rows.columns]
    return rows.withColumn(into, _encoding(parsed, id_)(F.struct(*chosen)))


def dead_letters(decoded: DataFrame, *, column: str = "value", error: str = "error") -> DataFrame:
    """The rows of `decode_avro` that have an error, ready to be written to a topic for them.

    They are as `barnabas.spark.dead_letters.letters` makes them, with the reason and where the record lies.
    """
    origin = [name for name in ("topic", "partition", "offset") if name in decoded.columns]
    return letters(decoded, F.col(column), F.col(error), origin)


@lru_cache(maxsize=32)
def _decoder(reader: RegisteredSchema, registry: str, column: pa.DataType) -> Decoder:
    """Kept in an executor's process, with the writers' schemas that it has asked for."""
    return Decoder(reader, RegistryClient(registry), column)


def _decoding(reader: RegisteredSchema, registry: str, made: DataType) -> Any:
    result = StructType([StructField("record", made), StructField("error", StringType())])
    arrow = to_arrow_type(result, timezone="UTC")

    def decode(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        decoder = _decoder(reader, registry, arrow.field(0).type)
        for payloads in batches:
            yield pa.StructArray.from_arrays(decoder.decode(payloads), fields=[*arrow])

    return _udf(decode, result)


def _encoding(schema: RegisteredSchema, id_: int) -> Any:
    def encode(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        encoder = Encoder(schema, id_)
        for records in batches:
            yield encoder.encode(records)

    return _udf(encode, BinaryType())


def _udf(function: Any, result: DataType) -> Any:
    # The function's type hints tell its kind. Without the mark Spark would run it again for each column that
    # is taken from its result.
    return F.arrow_udf(function, result).asNondeterministic()


def _spark_type(arrow: pa.DataType) -> DataType:
    made: DataType = from_arrow_type(arrow, prefer_timestamp_ntz=True)
    return made


def _fields(schema: AvroSchema) -> list[dict[str, Any]]:
    if not isinstance(schema.parsed, dict) or schema.parsed["type"] != "record":
        raise ConfigError(f"rows are records, and the schema is {json.dumps(schema.parsed)}")
    fields: list[dict[str, Any]] = schema.parsed["fields"]
    return fields


def _type_of(rows: DataFrame, column: str) -> DataType:
    if column not in rows.columns:
        raise ConfigError(f"there is no column {column} (there are: {', '.join(rows.columns)})")
    found: DataType = rows.schema[column].dataType
    return found
