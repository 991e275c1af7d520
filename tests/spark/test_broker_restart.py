"""A broker is killed and restarts while a task reads: the task continues at its position."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from barnabas.spark.arrow import arrow_schema
from barnabas.spark.clients import consumer_settings
from barnabas.spark.columns import column_names
from barnabas.spark.fetch import read_ranges
from barnabas.spark.options import WriteOptions
from barnabas.spark.ranges import OffsetRange
from barnabas.spark.writer import write_batches
from barnabas.testing import BarnabasBroker

BATCHES = 20
ROWS = 1_000


@pytest.fixture
def broker() -> Iterator[BarnabasBroker]:
    with BarnabasBroker(mode="process") as broker:
        yield broker


def batches() -> Iterator[pa.RecordBatch]:
    for batch in range(BATCHES):
        numbers = range(batch * ROWS, (batch + 1) * ROWS)
        yield pa.RecordBatch.from_pydict({"value": [f"{number:0100}" for number in numbers]})


def write(broker: BarnabasBroker, rows: Iterator[pa.RecordBatch]) -> int:
    client = {
        "bootstrap.servers": broker.bootstrap_servers,
        "log_level": "0",
        "reconnect.backoff.max.ms": "200",
    }
    return write_batches(WriteOptions(client, "t"), rows)


def read(broker: BarnabasBroker, **settings: str) -> Iterator[pa.RecordBatch]:
    given = {
        "bootstrap.servers": broker.bootstrap_servers,
        "log_level": "0",
        "reconnect.backoff.max.ms": "200",
    }
    return read_ranges(
        [OffsetRange("t", 0, 0, BATCHES * ROWS)],
        consumer_settings({**given, **settings}),
        arrow_schema(column_names(False)),
        fail_on_data_loss=True,
        poll_timeout_s=60,
    )


def numbers(tables: Iterator[pa.RecordBatch] | list[pa.RecordBatch]) -> list[int]:
    return [int(value) for batch in tables for value in batch.column("value").to_pylist()]


def test_a_task_reads_on_after_the_broker_was_killed(broker: BarnabasBroker) -> None:
    broker.create_topic("t")
    write(broker, batches())
    # small fetches, so that most is still to be fetched when the broker dies
    reading = read(broker, **{"max.partition.fetch.bytes": "20000"})
    begun = numbers([next(reading)])
    broker.kill()
    broker.start()
    assert len(begun) < BATCHES * ROWS
    assert begun + numbers(reading) == list(range(BATCHES * ROWS))


def test_a_task_writes_each_row_once_though_the_broker_was_killed(broker: BarnabasBroker) -> None:
    broker.create_topic("t")

    def interrupted() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches()):
            yield batch
            if number == BATCHES // 2:
                broker.kill()
                broker.start()

    assert write(broker, interrupted()) == BATCHES * ROWS
    assert numbers(read(broker)) == list(range(BATCHES * ROWS))
