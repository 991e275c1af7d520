"""The regular work of a broker: retention, flushes, checkpoints, expiry of producers."""

from __future__ import annotations

import time

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.testing import BarnabasBroker

SETTINGS = {
    "log.retention.check.interval.ms": "50",
    "log.flush.offset.checkpoint.interval.ms": "50",
    "log.flush.start.offset.checkpoint.interval.ms": "50",
    "replica.high.watermark.checkpoint.interval.ms": "50",
    "producer.id.expiration.check.interval.ms": "50",
    "log.segment.delete.delay.ms": "0",
}


@pytest.fixture(scope="module")
def broker():
    with BarnabasBroker(SETTINGS) as broker:
        yield broker


@pytest.fixture
def wire(connect, broker):
    return connect(broker)


def eventually(probe, expected):
    deadline = time.monotonic() + 60
    while (found := probe()) != expected:
        assert time.monotonic() < deadline, f"still {found!r}, expected {expected!r}"
        time.sleep(0.02)


@pytest.fixture
def log_start(wire, fetch_request):
    def ask(topic):
        end = wire(fetch_request(topic, {0: 0})).responses[0].partitions[0]
        if end.error_code == 0:
            return end.log_start_offset
        assert end.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        return "beyond 0"

    return ask


def files(broker, topic, suffix):
    return sorted(path.name for path in (broker.data / f"{topic.name}-0").glob(f"*{suffix}"))


def test_old_records_are_dropped_with_their_files(broker, make_topic, produce, batch, log_start):
    topic = make_topic(**{"retention.ms": "1000", "segment.bytes": "300"})
    for _ in range(3):
        produce(topic, batch(bytes(200)))  # from 2023
    eventually(lambda: log_start(topic), "beyond 0")
    eventually(lambda: files(broker, topic, ".log"), [f"{3:020d}.log"])
    eventually(lambda: files(broker, topic, ".deleted"), [])
    assert produce(topic, batch(b"new", timestamp=int(time.time() * 1000))).base_offset == 3


def test_a_partition_keeps_no_more_than_retention_bytes(broker, make_topic, produce, batch, log_start):
    topic = make_topic(**{"retention.bytes": "600", "retention.ms": "-1", "segment.bytes": "300"})
    for _ in range(8):
        produce(topic, batch(bytes(200)))
    eventually(lambda: len(files(broker, topic, ".log")) <= 3, True)
    assert log_start(topic) == "beyond 0"


def test_a_new_retention_holds_at_once(broker, make_topic, produce, batch, log_start, wire):
    topic = make_topic(**{"retention.ms": "-1"})
    produce(topic, batch(b"old"))
    expired = make_topic(**{"retention.ms": "1"})
    produce(expired, batch(b"old"))
    eventually(lambda: log_start(expired), "beyond 0")  # the check has passed
    assert log_start(topic) == 0
    change = AlterableConfig(name="retention.ms", config_operation=0, value="1")
    resource = AlterConfigsResource(resource_type=2, resource_name=topic.name, configs=[change])
    assert wire(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code == 0
    eventually(lambda: log_start(topic), "beyond 0")


def test_offsets_are_written_down(broker, make_topic, produce, batch):
    topic = make_topic(**{"flush.ms": "10"})
    produce(topic, batch(b"a", b"b"))

    def recorded(name):
        file = broker.data / name
        if not file.exists():  # the first is written after a while
            return None
        lines = file.read_text().splitlines()[2:]
        return {(name, index): int(offset) for name, index, offset in map(str.split, lines)}.get(
            (topic.name, "0")
        )

    eventually(lambda: recorded("replication-offset-checkpoint"), 2)
    eventually(lambda: recorded("recovery-point-offset-checkpoint"), 2)


def test_silent_producers_are_forgotten(broker, make_topic, produce, batch, wire):
    topic = make_topic()
    now = int(time.time() * 1000)
    produce(topic, batch(b"a", producer_id=3, producer_epoch=0, base_sequence=0, timestamp=now))

    def producers():
        request = DescribeProducersRequest(topics=[TopicRequest(name=topic.name, partition_indexes=[0])])
        return [p.producer_id for p in wire(request).topics[0].partitions[0].active_producers]

    assert producers() == [3]
    change = AlterableConfig(name="producer.id.expiration.ms", config_operation=0, value="100")
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[change])
    assert wire(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code == 0
    eventually(producers, [])
