"""The columns of a topic, in Spark's terms and in Arrow's.

Read: ``key``, ``value`` (binary), ``topic``, ``partition``, ``offset``, ``timestamp``, ``timestampType``
(0 the producer's, 1 the broker's, -1 none) and with ``includeHeaders`` ``headers``, NULL for none.
Written: ``value``, and when there ``key``, ``headers``, ``topic``, ``partition``; other columns are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from barnabas.errors import ConfigError

if TYPE_CHECKING:
    from confluent_kafka import Message

_SPARK_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_SPARK_COLUMNS = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
]

_ARROW_TIMESTAMP = pa.timestamp("us", tz="UTC")
_ARROW_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

#: confluent-kafka counts timestamp types from 0 "not available"; Spark, as Java, from -1
_TIMESTAMP_TYPE_SHIFT = 1

#: the types each written column may have; the first of them is what messages ask for
_WRITABLE: dict[str, tuple[type[DataType], ...]] = {
    "value": (BinaryType, StringType),
    "key": (BinaryType, StringType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "headers": (ArrayType,),
}


def read_schema(include_headers: bool) -> StructType:
    """What ``load()`` returns."""
    headers = [StructField("headers", _SPARK_HEADERS)] if include_headers else []
    return StructType(_SPARK_COLUMNS + headers)


def arrow_schema(include_headers: bool) -> pa.Schema:
    """`read_schema` as Spark converts it to Arrow: batches must match it to the letter."""
    fields = [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", _ARROW_TIMESTAMP),
        ("timestampType", pa.int32()),
    ]
    return pa.schema(fields + ([("headers", _ARROW_HEADERS)] if include_headers else []))


def to_record_batch(messages: list[Message], schema: pa.Schema) -> pa.RecordBatch:
    """Records as one Arrow batch of `schema`."""
    timestamps = [message.timestamp() for message in messages]
    columns = [
        pa.array([message.key() for message in messages], pa.binary()),
        pa.array([message.value() for message in messages], pa.binary()),
        pa.array([message.topic() for message in messages], pa.string()),
        pa.array([message.partition() for message in messages], pa.int32()),
        pa.array([message.offset() for message in messages], pa.int64()),
        _microseconds([at for _, at in timestamps]),
        pa.array([kind - _TIMESTAMP_TYPE_SHIFT for kind, _ in timestamps], pa.int32()),
    ]
    if len(schema) > len(columns):
        columns.append(pa.array([_header_structs(message.headers()) for message in messages], _ARROW_HEADERS))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _microseconds(milliseconds: list[int]) -> pa.Array:
    # by way of int64, which is faster than making timestamps of Python's ints
    return pa.array(milliseconds, pa.int64()).cast(pa.timestamp("ms", tz="UTC")).cast(_ARROW_TIMESTAMP)


def _header_structs(headers: list[tuple[str, bytes | None]] | None) -> list[dict[str, Any]] | None:
    return [{"key": key, "value": value} for key, value in headers] if headers else None


def check_writable(schema: StructType, topic_option: str | None) -> None:
    """Check that rows of `schema` can become records.

    Raises:
        ConfigError: a column is missing or has a type that a record cannot hold.
    """
    types = {field.name: field.dataType for field in schema.fields}
    if "value" not in types:
        raise ConfigError(
            f"column value is missing (there are: {', '.join(types)}): name the column to send value, "
            "such as with selectExpr('to_json(struct(*)) AS value')"
        )
    if topic_option is None and "topic" not in types:
        raise ConfigError(
            "option topic is missing: set it, or add a column topic that names each record's topic"
        )
    for name, allowed in _WRITABLE.items():
        found = types.get(name)
        if found is None:
            continue
        if not isinstance(found, allowed) or (name == "headers" and not _are_headers(found)):
            wanted = _SPARK_HEADERS.simpleString() if name == "headers" else allowed[0].typeName()
            raise ConfigError(f"column {name} is {found.simpleString()}: cast it to {wanted}")


def _are_headers(found: DataType) -> bool:
    element = found.elementType if isinstance(found, ArrayType) else None
    if not isinstance(element, StructType) or element.fieldNames() != ["key", "value"]:
        return False
    key, value = element.fields
    return isinstance(key.dataType, StringType) and isinstance(value.dataType, BinaryType)
