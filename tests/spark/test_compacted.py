"""A task whose range was compacted after its plan reads the remaining records, and reports no loss."""

from __future__ import annotations

import time

import pyarrow as pa
from confluent_kafka import Producer

from barnabas.spark.arrow import arrow_schema
from barnabas.spark.clients import consumer_settings
from barnabas.spark.columns import column_names
from barnabas.spark.fetch import read_ranges
from barnabas.spark.ranges import OffsetRange
from barnabas.testing import BarnabasBroker

KEYS, RECORDS = 10, 400
SETTINGS = {
    "log.cleaner.backoff.ms": "20",
    "log.segment.delete.delay.ms": "0",
    "log.flush.interval.messages": "1",
}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.01"}


def read(broker, *ranges):
    schema = arrow_schema(column_names(False))
    settings = consumer_settings({"bootstrap.servers": broker.bootstrap_servers})
    batches = read_ranges(list(ranges), settings, schema, fail_on_data_loss=True, poll_timeout_s=30)
    return {row["offset"]: row["key"] for row in pa.Table.from_batches(list(batches), schema).to_pylist()}


def test_a_range_that_was_compacted_after_it_was_planned_has_the_last_value_of_each_key():
    with BarnabasBroker(SETTINGS) as broker:
        broker.create_topic("latest", configs=COMPACTED)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 5})
        for number in range(RECORDS):
            producer.produce("latest", str(number), str(number % KEYS))
        assert producer.flush(60) == 0
        planned = OffsetRange("latest", 0, 0, RECORDS)
        deadline = time.monotonic() + 60
        while len(left := read(broker, planned)) > RECORDS / 2:
            assert time.monotonic() < deadline, "it was not compacted"
            time.sleep(0.05)
        assert {left[offset] for offset in range(RECORDS - KEYS, RECORDS)} == {
            str(key).encode() for key in range(KEYS)
        }
        middle = read(broker, OffsetRange("latest", 0, 0, RECORDS // 2))
        assert all(offset < RECORDS // 2 for offset in middle), "the range's end may be in a hole"
