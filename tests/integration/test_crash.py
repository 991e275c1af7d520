"""kill -9 under load: after the restart, each acknowledged record exists once, at its offset."""

from __future__ import annotations

import threading
import time
import uuid

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing import BarnabasBroker

PARTITIONS = 3
ROUNDS = 3


@pytest.fixture(params=["page-cache", "fsync"])
def broker(request):
    settings = {
        "log.segment.bytes": "500000",  # so that segments roll all the time
        "barnabas.acks.fsync": "true" if request.param == "fsync" else "false",
    }
    with BarnabasBroker(settings, mode="process") as broker:
        yield broker


def create(broker, topic):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)


class Load(threading.Thread):
    """A producer that runs until it is stopped. `acknowledged` maps each value to its
    partition and offset.
    """

    def __init__(self, servers, topic):
        super().__init__()
        self.topic = topic
        self.acknowledged = {}
        self.failures = []
        self.sent = 0
        self.stopping = threading.Event()
        self.producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.size": 20_000,
                "queue.buffering.max.messages": 5000,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )

    def run(self):
        while not self.stopping.is_set():
            value = b"%010d" % self.sent + b"x" * (self.sent % 500)
            try:
                self.producer.produce(
                    self.topic, value, partition=self.sent % PARTITIONS, on_delivery=self.done
                )
                self.sent += 1
            except BufferError:
                self.producer.poll(0.05)
            self.producer.poll(0)
        self.producer.flush(60)

    def done(self, error, message):
        if error is not None:
            self.failures.append(error)
        else:
            self.acknowledged[message.value()] = (message.partition(), message.offset())


def read_all(servers, topic):
    """Return every record up to the present ends: {(partition, offset): value}.

    The load continues, so records after the ends must not count. Otherwise they could hide missing records of
    another partition.
    """
    consumer = Consumer({"bootstrap.servers": servers, "group.id": uuid.uuid4().hex, "check.crcs": True})
    ends = {}
    for partition in range(PARTITIONS):
        _, ends[partition] = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=60)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    found = {}
    deadline = time.monotonic() + 60
    while len(found) < sum(ends.values()):
        assert time.monotonic() < deadline, f"only {len(found)} of {sum(ends.values())} records can be read"
        for message in consumer.consume(1000, 0.2):
            assert message.error() is None
            if message.offset() < ends[message.partition()]:
                found[message.partition(), message.offset()] = message.value()
    consumer.close()
    return found


def on_disk(broker, topic):
    """Return the topic's files with their sizes, for the message of a failure."""
    files = sorted(broker.data.glob(f"{topic}*/*"))
    return "\n".join(f"{file.parent.name}/{file.name} {file.stat().st_size}" for file in files)


def test_no_acknowledged_record_is_lost_or_doubled_when_the_broker_is_killed(broker):
    topic = "load"
    create(broker, topic)
    load = Load(broker.bootstrap_servers, topic)
    load.start()
    try:
        for _ in range(ROUNDS):
            reached = len(load.acknowledged) + 1000
            deadline = time.monotonic() + 60
            while len(load.acknowledged) < reached:
                assert time.monotonic() < deadline, "the load does not get on"
                time.sleep(0.005)
            acknowledged = dict(load.acknowledged)
            broker.kill()
            broker.start()
            found = read_all(broker.bootstrap_servers, topic)
            lost = {value: at for value, at in acknowledged.items() if found.get(at) != value}
            assert not lost, f"{lost}\n{on_disk(broker, topic)}"
    finally:
        load.stopping.set()
        load.join()
    assert load.failures == []
    assert len(load.acknowledged) == load.sent
    found = read_all(broker.bootstrap_servers, topic)
    assert {at: value for value, at in load.acknowledged.items()} == found
