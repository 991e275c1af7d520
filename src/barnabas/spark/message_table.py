"""Converts an Arrow batch to librdkafka's table of messages, without a Python object for each value."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from barnabas.spark.librdkafka import MESSAGES, MessageTable

#: The address of empty values: 0 would be NULL.
_NOTHING = ctypes.create_string_buffer(1)


def message_table(rows: pa.RecordBatch) -> MessageTable:
    """Return librdkafka's table for `rows`, from their columns value, key and partition.

    The table has addresses in the memory of `rows`, so it is valid only while `rows` exists.
    """
    table = np.zeros(rows.num_rows, MESSAGES)
    table["payload"], table["len"] = _addresses(rows.column("value"))
    if "key" in rows.schema.names:
        table["key"], table["key_len"] = _addresses(rows.column("key"))
    table["partition"] = -1
    if "partition" in rows.schema.names:
        table["partition"] = rows.column("partition").fill_null(-1).to_numpy(zero_copy_only=False)
    return table


def _addresses(column: pa.Array) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return the address (0 for NULL) and the length of each value in a binary or string column."""
    wide = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    offset_type = np.dtype(np.int64 if wide else np.int32)
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, offset_type, len(column) + 1, column.offset * offset_type.itemsize).astype(
        np.uint64
    )
    sizes = np.diff(ends)
    base = ctypes.addressof(_NOTHING) if data is None or data.size == 0 else data.address
    addresses = ends[:-1] + np.uint64(base)
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        addresses, sizes = addresses * valid, sizes * valid
    return addresses, sizes
