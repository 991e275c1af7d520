"""Records as Arrow batches, with columns of `barnabas.spark.columns`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
from confluent_kafka import Message

_ARROW_TIMESTAMP = pa.timestamp("us", tz="UTC")
_ARROW_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

#: confluent-kafka counts timestamp types from 0 "not available"; Spark, as Java, from -1
_TIMESTAMP_TYPE_SHIFT = 1

#: Spark's types as Spark converts them to Arrow: batches must match them to the letter.
_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": _ARROW_TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": _ARROW_HEADERS,
}


def arrow_schema(columns: Iterable[str]) -> pa.Schema:
    """The schema of batches with these columns, in this order."""
    return pa.schema([(name, _TYPES[name]) for name in columns])


def to_record_batch(messages: list[Message], schema: pa.Schema) -> pa.RecordBatch:
    """Records as one Arrow batch of `schema`."""
    return pa.RecordBatch.from_arrays([_VALUES[name](messages) for name in schema.names], schema=schema)


def _times(messages: list[Message]) -> pa.Array:
    milliseconds = [message.timestamp()[1] for message in messages]
    # by way of int64, which is faster than making timestamps of Python's ints
    return pa.array(milliseconds, pa.int64()).cast(pa.timestamp("ms", tz="UTC")).cast(_ARROW_TIMESTAMP)


def _header_structs(headers: list[tuple[str, bytes | None]] | None) -> list[dict[str, Any]] | None:
    return [{"key": key, "value": value} for key, value in headers] if headers else None


_VALUES: dict[str, Callable[[list[Message]], pa.Array]] = {
    "key": lambda messages: pa.array([each.key() for each in messages], pa.binary()),
    "value": lambda messages: pa.array([each.value() for each in messages], pa.binary()),
    "topic": lambda messages: pa.array([each.topic() for each in messages], pa.string()),
    "partition": lambda messages: pa.array([each.partition() for each in messages], pa.int32()),
    "offset": lambda messages: pa.array([each.offset() for each in messages], pa.int64()),
    "timestamp": _times,
    "timestampType": lambda messages: pa.array(
        [each.timestamp()[0] - _TIMESTAMP_TYPE_SHIFT for each in messages], pa.int32()
    ),
    "headers": lambda messages: pa.array(
        [_header_structs(each.headers()) for each in messages], _ARROW_HEADERS
    ),
}
