"""DeleteRecords: a new log start."""

from dataclasses import replace
from functools import partial

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from simulation.faulty_disk import FaultyDisk

from barnabas.base.environment.environment import Environment
from barnabas.base.errors import ErrorCode
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.run import BrokerServer
from barnabas.kafka.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.testing import BarnabasBroker


@pytest.fixture
def delete_over():
    def send(wire, topic, offset, *, partition=0, version=2):
        wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(
            timeout_ms=60_000, topics=[DeleteRecordsTopic(name=topic.name, partitions=[wanted])]
        )
        (result,) = wire(request, version).topics[0].partitions
        return result.error_code, result.low_watermark

    return send


@pytest.fixture
def delete(wire, delete_over):
    return partial(delete_over, wire)


@pytest.fixture
def filled(topic, produce, batch):
    for n in range(5):
        produce(topic, batch(b"%d" % n))
    return topic


@pytest.mark.parametrize("version", range(3))
def test_records_below_the_offset_are_gone(filled, delete, wire, fetch_request, read_values, version):
    assert delete(filled, 3, version=version) == (0, 3)
    gone = wire(fetch_request(filled, {0: 2})).responses[0].partitions[0]
    assert gone.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    kept = wire(fetch_request(filled, {0: 3})).responses[0].partitions[0]
    assert read_values(kept) == [b"3", b"4"]
    assert kept.log_start_offset == 3


def test_minus_one_deletes_all_there_is(filled, delete, produce, batch):
    assert delete(filled, -1) == (0, 5)
    assert produce(filled, batch(b"next")).base_offset == 5


def test_deleting_less_than_is_gone_already_changes_nothing(filled, delete):
    assert delete(filled, 3) == (0, 3)
    assert delete(filled, 1) == (0, 3)


@pytest.mark.parametrize("offset", [6, -2])
def test_an_offset_that_cannot_be_is_out_of_range(filled, delete, offset):
    assert delete(filled, offset)[0] == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_compacted_topic_keeps_its_records(make_topic, produce, batch, delete):
    topic = make_topic(**{"cleanup.policy": "compact"})
    produce(topic, batch(b"a", key=b"k"))
    assert delete(topic, 1)[0] == ErrorCode.POLICY_VIOLATION


def test_records_of_a_topic_without_a_cleanup_policy_can_be_deleted(make_topic, produce, batch, delete):
    topic = make_topic(**{"cleanup.policy": ""})
    produce(topic, batch(b"a"))
    assert delete(topic, 1) == (0, 1)


def test_a_partition_that_does_not_exist_is_an_error(topic, delete):
    assert delete(topic, 0, partition=2)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def low_watermark(broker, topic):
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "none"})
    low, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
    consumer.close()
    return low


def fill(broker, topic, count):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
    for number in range(count):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(60) == 0


def test_an_answered_deletion_survives_kill_9():
    with BarnabasBroker(mode="process") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
        fill(broker, "t", 10)
        for offset in (3, 7):
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            admin.list_topics("t", timeout=60)  # else librdkafka may say that it knows no leader
            wanted = TopicPartition("t", 0, offset)
            (done,) = admin.delete_records([wanted]).values()
            assert done.result(60).low_watermark == offset
            broker.kill()
            broker.start()
            assert low_watermark(broker, "t") == offset


def test_a_deletion_that_cannot_be_written_down_is_not_answered_as_done(
    tmp_path, connect, make_topic, produce, batch, delete_over
):
    disk = FaultyDisk()
    settings = {"log_dirs": (str(tmp_path),), "listeners": ("PLAINTEXT://127.0.0.1:0",)}
    with BrokerServer(BrokerConfig(**settings), replace(Environment.of_system(), filesystem=disk)) as broker:
        wire = connect(broker.bootstrap_servers)
        topic = make_topic(by=wire)
        for _ in range(5):
            produce(topic, batch(b"v"), by=wire)
        disk.space = 0
        assert delete_over(wire, topic, 3) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert low_watermark(broker, topic.name) == 0  # what was refused has not happened
        disk.space = None
        assert delete_over(wire, topic, 2) == (ErrorCode.NONE, 2)
        disk.fail_writes = True
        assert delete_over(wire, topic, 3) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


def test_a_new_topic_does_not_begin_where_a_deleted_one_of_its_name_did():
    with BarnabasBroker({"log.segment.delete.delay.ms": "0"}, mode="process") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
        fill(broker, "t", 10)
        admin.list_topics("t", timeout=60)
        (done,) = admin.delete_records([TopicPartition("t", 0, 7)]).values()
        done.result(60)
        checkpoint = broker.data / "log-start-offset-checkpoint"
        assert "t 0 7" in checkpoint.read_text()
        admin.delete_topics(["t"])["t"].result(60)
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
        fill(broker, "t", 5)
        broker.kill()
        assert "t 0 7" in checkpoint.read_text()  # which is of the topic that was deleted
        broker.start()
        assert low_watermark(broker, "t") == 0
