"""The table of messages agrees with the contents of a batch."""

from __future__ import annotations

import ctypes

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.librdkafka import MessageTable
from barnabas.spark.message_table import message_table

BYTES = st.none() | st.binary(max_size=20)
ROWS = st.lists(st.tuples(BYTES, BYTES, st.none() | st.integers(0, 9)), max_size=20)


def found(table: MessageTable, address: str, length: str) -> list[bytes | None]:
    return [ctypes.string_at(int(row[address]), int(row[length])) if row[address] else None for row in table]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
@given(rows=ROWS, start=st.integers(0, 20), count=st.integers(0, 20))
def test_every_key_value_and_partition_is_where_the_table_says(
    kind: pa.DataType, rows: list[tuple[bytes | None, bytes | None, int | None]], start: int, count: int
) -> None:
    names = {"key": kind, "value": kind, "partition": pa.int32()}
    columns = [pa.array([row[number] for row in rows], kind) for number, kind in enumerate(names.values())]
    batch = pa.RecordBatch.from_arrays(columns, list(names)).slice(start, count)
    table = message_table(batch)
    assert found(table, "key", "key_len") == batch.column("key").to_pylist()
    assert found(table, "payload", "len") == batch.column("value").to_pylist()
    assert np.array_equal(table["partition"], batch.column("partition").fill_null(-1))


def test_a_batch_without_keys_and_partitions_leaves_them_open() -> None:
    (row,) = message_table(pa.RecordBatch.from_pydict({"value": ["v"]}))
    assert (int(row["key"]), int(row["partition"])) == (0, -1)
