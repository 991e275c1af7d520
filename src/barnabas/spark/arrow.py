"""Converts records to Arrow batches with the columns of `barnabas.spark.columns`.

Arrow's function `take` copies keys and values out of the buffer with the decompressed records. `take` needs
an Arrow array, so this module makes an array over the whole buffer, without a copy. The elements of the array
alternate: a key or a value, then the bytes up to the next key or value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import Buffer, Offset, TopicPartition
from barnabas.spark.record_fields import Fields, Spans, fields_of, headers_of
from barnabas.spark.visible_batches import Payload

#: Bytes of records that are decoded at once into an Arrow batch. Each batch costs some 0.4 ms, in the Python
#: worker and in Spark's JVM together, so smaller batches are slower.
_AT_ONCE_BYTES = 4 * 1024 * 1024

#: The latest timestamp in milliseconds that Spark can represent: its timestamps are microseconds in 64 bits.
_LAST_MS = (2**63 - 1) // 1000

_ARROW_TIMESTAMP = pa.timestamp("us", tz="UTC")
_ARROW_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])

#: The Arrow types to which Spark converts its types. Batches must have exactly these types.
_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": _ARROW_TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": pa.list_(_ARROW_HEADER),
}


def arrow_schema(columns: Iterable[str]) -> pa.Schema:
    """Return the Arrow schema of batches with these columns of a topic, in this order."""
    return pa.schema([(name, _TYPES[name]) for name in columns])


def to_record_batches(
    tp: TopicPartition, payloads: Iterable[Payload], start: Offset, end: Offset, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield Arrow batches with the records of `tp` from offset `start` up to, but without, `end`.

    `payloads` are the partition's batches in order, decompressed. `schema` is a result of `arrow_schema`.
    Headers are decoded only if it has the column ``headers``.

    Raises:
        KafkaError: CORRUPT_MESSAGE; INVALID_TIMESTAMP, Spark cannot represent a timestamp. Errors that the
            iteration of `payloads` raises are raised, too.
    """
    for group in _groups(payloads):
        fields = fields_of(group)
        first, last = np.searchsorted(fields.offset, (start, end))
        if first < last:
            fields = fields[first:last]
            columns = [_VALUES[name](tp, fields) for name in schema.names]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _groups(payloads: Iterable[Payload]) -> Iterator[list[Payload]]:
    group: list[Payload] = []
    size = 0
    for payload in payloads:
        group.append(payload)
        size += payload.end - payload.start
        if size >= _AT_ONCE_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _binary(data: Buffer, spans: Spans) -> pa.Array:
    count = len(spans.start)
    edges = np.zeros(2 * count + 1, np.int64)
    edges[:-1:2], edges[1::2] = spans.start, spans.end
    edges[-1] = edges[-2] if count else 0
    kind, offsets = (pa.binary(), edges.astype(np.int32)) if len(data) < 2**31 else (pa.large_binary(), edges)
    elements = pa.Array.from_buffers(kind, 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    taken = elements.take(pa.array(np.arange(0, 2 * count, 2), mask=_nulls(spans.length < 0)))
    return taken.cast(pa.binary())


def _nulls(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_] | None:
    return mask if mask.any() else None


def _text(data: Buffer, spans: Spans) -> pa.Array:
    """Decode the byte strings as UTF-8. Invalid bytes become U+FFFD, as in Java's clients."""
    raw = _binary(data, spans)
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([each.decode("utf-8", "replace") for each in raw.to_pylist()], pa.string())


def _times(_: TopicPartition, fields: Fields) -> pa.Array:
    beyond = np.flatnonzero((fields.timestamp > _LAST_MS) | (fields.timestamp < -_LAST_MS))
    if beyond.size:  # of a producer that took nanoseconds for milliseconds, say
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"the record at offset {fields.offset[beyond[0]]} has the time {fields.timestamp[beyond[0]]}, "
            "in milliseconds, which is more than Spark can hold; to continue, choose all columns except "
            "timestamp in .schema(...)",
        )
    return pa.array(fields.timestamp).cast(pa.timestamp("ms", tz="UTC")).cast(_ARROW_TIMESTAMP)


def _headers(_: TopicPartition, fields: Fields) -> pa.Array:
    headers = headers_of(fields)
    structs = pa.StructArray.from_arrays(
        [_text(fields.data, headers.key), _binary(fields.data, headers.value)], fields=list(_ARROW_HEADER)
    )
    edges = np.concatenate([[0], np.cumsum(headers.count)]).astype(np.int32)
    none = headers.count == 0
    return pa.ListArray.from_arrays(edges, structs, type=_TYPES["headers"], mask=pa.array(none))


_VALUES: dict[str, Callable[[TopicPartition, Fields], pa.Array]] = {
    "key": lambda _, fields: _binary(fields.data, fields.key),
    "value": lambda _, fields: _binary(fields.data, fields.value),
    "topic": lambda tp, fields: pa.repeat(tp.topic, len(fields.offset)),
    "partition": lambda tp, fields: pa.array(np.full(len(fields.offset), tp.partition, np.int32)),
    "offset": lambda _, fields: pa.array(fields.offset),
    "timestamp": _times,
    "timestampType": lambda _, fields: pa.array(fields.is_append_time.astype(np.int32)),
    "headers": _headers,
}
