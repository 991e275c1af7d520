"""confluent-kafka's ShareConsumer: members share records, acknowledge them one by one, leave and die."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from tests.integration.conftest import Wire, use_share_groups

from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.testing import BarnabasBroker

GROUP_RESOURCE = 32
#: polls of a second each in which a client that works has long had its records
PATIENCE = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    settings = {"share.coordinator.state.topic.num.partitions": "1"}
    with BarnabasBroker(settings, data=tmp_path_factory.mktemp("shared") / "data") as broker:
        wire = Wire(broker.bootstrap_servers)
        use_share_groups(wire)
        wire.close()
        yield broker


_numbers = itertools.count()


class Queue:
    """A topic, and a share group that reads it from the start."""

    def __init__(self, broker, **settings):
        self.broker = broker
        self.topic = self.group = f"queue-{next(_numbers)}"
        self._open = []
        broker.create_topic(self.topic, 2)
        settings["share.auto.offset.reset"] = "earliest"
        resource = AlterConfigsResource(
            resource_type=GROUP_RESOURCE,
            resource_name=self.group,
            configs=[AlterableConfig(name=name, value=value) for name, value in settings.items()],
        )
        wire = Wire(broker.bootstrap_servers)
        assert wire(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code == 0
        wire.close()

    def write(self, count):
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers})
        for number in range(count):
            producer.produce(self.topic, b"%d" % number)
        producer.flush()

    def consumer(self, **settings):
        consumer = ShareConsumer(
            {"bootstrap.servers": self.broker.bootstrap_servers, "group.id": self.group, **settings}
        )
        consumer.subscribe([self.topic])
        self._open.append(consumer)
        return consumer

    def leave(self, consumer):
        self._open.remove(consumer)
        consumer.close()

    def close(self):
        for consumer in self._open:
            consumer.close()


@pytest.fixture
def queue(broker):
    queue = Queue(broker)
    yield queue
    queue.close()


def some(*consumers, until):
    """Return the records that consumers get until there are enough: (consumer, message)."""
    got = []
    for _ in range(PATIENCE * 10):
        for number, consumer in enumerate(consumers):
            got += [(number, message) for message in consumer.poll(0.1)]
        assert not any(message.error() for _, message in got)
        if len(got) >= until:
            return got
    raise AssertionError(f"{len(got)} of {until} records came")


def values(got):
    return Counter(message.value() for _, message in got)


def test_members_share_the_records_and_each_is_delivered_once(queue):
    queue.write(300)
    got = some(queue.consumer(), queue.consumer(), until=300)
    assert values(got) == Counter(b"%d" % number for number in range(300))


def test_accepted_records_do_not_come_again_and_later_ones_do(queue):
    queue.write(20)
    consumer = queue.consumer()
    some(consumer, until=20)
    consumer.commit_sync()
    consumer.close()
    queue.write(1)
    (record,) = some(queue.consumer(), until=1)
    assert record[1].value() == b"0"


def test_a_released_record_comes_again_and_a_rejected_one_does_not(queue):
    queue.write(3)
    consumer = queue.consumer(**{"share.acknowledgement.mode": "explicit"})
    answers = {b"0": AcknowledgeType.ACCEPT, b"1": AcknowledgeType.REJECT, b"2": AcknowledgeType.RELEASE}
    seen = []
    for _ in range(PATIENCE * 10):
        for message in consumer.poll(0.1):
            seen.append(message.value())
            consumer.acknowledge(message, answers[message.value()])
        consumer.commit_sync()
        if seen.count(b"2") == 2:
            answers[b"2"] = AcknowledgeType.ACCEPT
        if seen.count(b"2") == 3:
            break
    assert Counter(seen) == {b"0": 1, b"1": 1, b"2": 3}


def test_a_member_that_closes_hands_its_records_to_another(queue):
    queue.write(10)
    gone = queue.consumer(**{"share.acknowledgement.mode": "explicit"})
    for _ in range(PATIENCE * 10):
        taken = gone.poll(0.1)
        if taken:
            break
    assert taken
    gone.close()
    assert values(some(queue.consumer(), until=10)) == Counter(b"%d" % number for number in range(10))
