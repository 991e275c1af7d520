"""AlterReplicaLogDirs: replicas move to another disk of their broker while clients continue."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, Producer
from kafka.admin import KafkaAdminClient

from barnabas.base.errors import ErrorCode
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.run import BrokerServer
from barnabas.kafka.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.kafka.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest


@pytest.fixture
def paths(tmp_path):
    return [str(tmp_path / "a"), str(tmp_path / "b")]


@pytest.fixture
def start(paths):
    running = []

    def start_broker(**settings):
        settings = {"log_segment_delete_delay_ms": 0, "listeners": ("PLAINTEXT://127.0.0.1:0",), **settings}
        running.append(BrokerServer(BrokerConfig(log_dirs=tuple(paths), **settings)).start())
        return running[-1]

    yield start_broker
    for broker in running:
        broker.stop()


def move(wire, path, *partitions, version=2):
    topics = {}
    for name, index in partitions:
        topics.setdefault(name, AlterReplicaLogDirTopic(name=name)).partitions.append(index)
    wanted = AlterReplicaLogDir(path=path, topics=list(topics.values()))
    response = wire(AlterReplicaLogDirsRequest(dirs=[wanted]), version)
    return {(t.topic_name, p.partition_index): p.error_code for t in response.results for p in t.partitions}


def places(wire, topic):
    """Return the log directory of each replica and of its copies, with their lags."""
    wanted = [DescribableLogDirTopic(topic=topic.name, partitions=list(range(10)))]
    current, future = {}, {}
    for result in wire(DescribeLogDirsRequest(topics=wanted)).results:
        for each in result.topics:
            for replica in each.partitions:
                if replica.is_future_key:
                    future[replica.partition_index] = (result.log_dir, replica.offset_lag)
                else:
                    current[replica.partition_index] = result.log_dir
    return current, future


def wait_until_moved(wire, topic, path, count):
    deadline = time.monotonic() + 60
    while places(wire, topic) != (dict.fromkeys(range(count), path), {}):
        assert time.monotonic() < deadline, places(wire, topic)
        time.sleep(0.02)


@pytest.mark.parametrize("version", [1, 2])
def test_replicas_move_and_are_read_as_before(
    paths, start, connect, make_topic, produce, batch, fetch_request, read_values, version
):
    wire = connect(start())
    topic = make_topic(2, by=wire)
    for number in range(5):
        produce(topic, batch(b"%d" % number), by=wire)
    assert move(wire, paths[1], *[(topic.name, each) for each in (0, 1)], version=version) == {
        (topic.name, 0): 0,
        (topic.name, 1): 0,
    }
    wait_until_moved(wire, topic, paths[1], 2)
    produce(topic, batch(b"after"), by=wire)
    data = wire(fetch_request(topic, {0: 0})).responses[0].partitions[0]
    assert read_values(data) == [b"0", b"1", b"2", b"3", b"4", b"after"]


def test_what_cannot_be_is_refused_for_each_replica(paths, start, connect, make_topic):
    wire = connect(start())
    topic = make_topic(1, by=wire)
    assert move(wire, "/nowhere", (topic.name, 0)) == {(topic.name, 0): ErrorCode.LOG_DIR_NOT_FOUND}
    assert move(wire, paths[0], ("none", 3)) == {("none", 3): ErrorCode.REPLICA_NOT_AVAILABLE}
    assert AlterReplicaLogDirsRequest.api_key == 34


def test_a_move_goes_on_after_a_stop_and_shows_how_far_it_is(
    paths, start, connect, make_topic, produce, batch
):
    slow = start(replica_alter_log_dirs_io_max_bytes_per_second=2000)
    wire = connect(slow)
    topic = make_topic(1, by=wire)
    for _ in range(20):
        produce(topic, batch(bytes(1000)), by=wire)
    (source,) = places(wire, topic)[0].values()
    target = next(path for path in paths if path != source)
    move(wire, target, (topic.name, 0))
    ((path, lag),) = places(wire, topic)[1].values()
    assert (path, 0 < lag <= 20) == (target, True)
    slow.stop()
    again = connect(start())
    wait_until_moved(again, topic, target, 1)


def test_idempotent_producers_and_consumers_notice_nothing(paths, start, connect, make_topic):
    broker = start(barnabas_acks_fsync=True)
    wire = connect(broker)
    topic = make_topic(2, by=wire, **{"segment.bytes": "20000"})
    servers = broker.bootstrap_servers
    admin = KafkaAdminClient(bootstrap_servers=servers)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 1})
    acknowledged = []
    number = 0
    for turn in range(6):
        target = paths[turn % 2]
        wanted = {(topic.name, index, 1): target for index in (0, 1)}
        assert all(error.errno == 0 for error in admin.alter_replica_log_dirs(wanted).values())
        deadline = time.monotonic() + 60
        while places(wire, topic) != (dict.fromkeys((0, 1), target), {}):
            assert time.monotonic() < deadline
            for _ in range(50):
                producer.produce(
                    topic.name,
                    b"%d" % number,
                    partition=number % 2,
                    on_delivery=lambda error, message: acknowledged.append((error, message.value())),
                )
                number += 1
            producer.flush(60)
    admin.close()
    assert len(acknowledged) == number
    assert [error for error, _ in acknowledged if error is not None] == []
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest", "check.crcs": True}
    )
    consumer.subscribe([topic.name])
    read = []
    while len(read) < number:
        message = consumer.poll(60)
        assert message is not None, f"{len(read)} of {number}"
        read.append((message.partition(), int(message.value())))
    consumer.close()
    assert sorted(value for _, value in read) == list(range(number))
    for index in (0, 1):
        assert [value for at, value in read if at == index] == list(range(index, number, 2))
