"""Records as Arrow batches, with the columns of `barnabas.spark.columns.read_schema`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from confluent_kafka import Message

_ARROW_TIMESTAMP = pa.timestamp("us", tz="UTC")
_ARROW_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

#: confluent-kafka counts timestamp types from 0 "not available"; Spark, as Java, from -1
_TIMESTAMP_TYPE_SHIFT = 1


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
