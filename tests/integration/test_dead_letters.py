"""Dead letters of share groups (KIP-1191): confluent-kafka's share consumers reject and release records."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import AcknowledgeType, Producer
from tests.integration.conftest import Wire
from tests.integration.test_share_consumer import PATIENCE, Queue, some

from barnabas.base.errors import ErrorCode
from barnabas.client import ClientError
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.testing import BarnabasBroker

TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE = 2, 4, 32
MINE = {"errors.deadletterqueue.group.enable": "true"}
EXPLICIT = {"share.acknowledgement.mode": "explicit"}

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory) -> Iterator[BarnabasBroker]:
    settings = {"share.coordinator.state.topic.num.partitions": "1"}
    with BarnabasBroker(settings, data=tmp_path_factory.mktemp("letters") / "data") as broker:
        yield broker


def configure(broker, kind: int, name: str, **settings: str) -> int:
    """Set settings, with _ for the dots of their names. Return the error code."""
    configs = [AlterableConfig(name=each.replace("_", "."), value=value) for each, value in settings.items()]
    wire = Wire(broker.bootstrap_servers.partition(",")[0])
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    (response,) = wire(IncrementalAlterConfigsRequest(resources=[resource])).responses
    wire.close()
    return response.error_code


@pytest.fixture
def queue(broker) -> Iterator[Queue]:
    dlq = f"dlq.{next(_numbers)}"
    queue = Queue(broker, **{"errors.deadletterqueue.topic.name": dlq, "share.delivery.count.limit": "2"})
    queue.dlq = dlq
    yield queue
    queue.close()


def reject(queue: Queue, count: int, kind=AcknowledgeType.REJECT, times: int = 1) -> list[bytes]:
    """Read each of `count` records `times` times, and acknowledge each delivery with the type `kind`. Return
    the values in the order of delivery.
    """
    consumer = queue.consumer(**EXPLICIT)
    values = []
    for _ in range(PATIENCE * 10):
        for message in consumer.poll(0.1):
            assert not message.error()
            values.append(message.value())
            consumer.acknowledge(message, kind)
        consumer.commit_sync()
        if len(values) == count * times:
            queue.leave(consumer)
            return values
    raise AssertionError(f"{values} of {count * times} came")


def letters(queue: Queue, count: int) -> list:
    """Return `count` dead letters from the dead-letter queue, sorted by the offsets
    of their original records.
    """
    deadline = time.monotonic() + PATIENCE
    while queue.dlq not in queue.broker.admin().topics() and time.monotonic() < deadline:
        time.sleep(0.1)
    return sorted(
        queue.broker.consume(queue.dlq, count, timeout=PATIENCE),
        key=lambda letter: [value for name, value in letter.headers if name == "__dlq.errors.offset"],
    )


def test_a_rejected_record_leaves_a_dead_letter_with_kafkas_headers_only(broker, queue):
    broker.create_topic(queue.dlq, 1, configs=MINE)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(queue.topic, b"poison", key=b"k", partition=1, headers={"mine": b"1"})
    producer.flush()
    assert reject(queue, 1) == [b"poison"]
    (letter,) = letters(queue, 1)
    assert (letter.key, letter.value) == (None, None)
    assert list(letter.headers) == [
        ("__dlq.errors.topic", queue.topic.encode()),
        ("__dlq.errors.partition", b"1"),
        ("__dlq.errors.offset", b"0"),
        ("__dlq.errors.group", queue.group.encode()),
        ("__dlq.errors.delivery.count", b"1"),
        ("__dlq.errors.message", b"Offset rejected by client."),
    ]
    assert abs(letter.timestamp_ms / 1000 - time.time()) < 300


def test_a_copied_record_has_its_key_value_and_headers_and_its_delivery_count(broker, queue):
    broker.create_topic(queue.dlq, 2, configs=MINE)
    configure(broker, GROUP_RESOURCE, queue.group, errors_deadletterqueue_copy_record_enable="true")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": "zstd"})
    producer.produce(queue.topic, b"poison", key=b"k", partition=1, headers={"mine": b"1"})
    producer.flush()
    assert reject(queue, 1, AcknowledgeType.RELEASE, times=2) == [b"poison"] * 2
    (letter,) = letters(queue, 1)
    assert (letter.key, letter.value, letter.partition) == (b"k", b"poison", 1)
    assert letter.headers[0] == ("mine", b"1")
    assert dict(letter.headers[1:]) == {
        "__dlq.errors.topic": queue.topic.encode(),
        "__dlq.errors.partition": b"1",
        "__dlq.errors.offset": b"0",
        "__dlq.errors.group": queue.group.encode(),
        "__dlq.errors.delivery.count": b"2",
        "__dlq.errors.message": b"Offset delivery count exceeded the threshold.",
    }


def test_each_record_given_up_has_one_dead_letter_and_no_other_has_one(broker, queue):
    broker.create_topic(queue.dlq, 3, configs=MINE)
    configure(broker, GROUP_RESOURCE, queue.group, errors_deadletterqueue_copy_record_enable="true")
    queue.write(2000)
    consumer = queue.consumer(**EXPLICIT)
    left = 2000
    for _ in range(PATIENCE * 10):
        for message in consumer.poll(0.1):
            bad = int(message.value()) % 3 == 0
            consumer.acknowledge(message, AcknowledgeType.REJECT if bad else AcknowledgeType.ACCEPT)
            left -= 1
        consumer.commit_sync()
        if not left:
            break
    bad = [b"%d" % number for number in range(0, 2000, 3)]
    values = [letter.value for letter in letters(queue, len(bad))]
    assert sorted(values) == sorted(bad)


def test_a_missing_queue_makes_the_record_wait_and_other_records_go_on(broker, queue):
    queue.write(1)
    assert reject(queue, 1) == [b"0"]
    queue.write(5)
    assert len(some(queue.consumer(), until=5)) == 5
    broker.create_topic(queue.dlq, 1, configs=MINE)
    assert len(letters(queue, 1)) == 1


def test_a_topic_that_does_not_allow_it_is_no_dead_letter_queue(broker, queue):
    broker.create_topic(queue.dlq, 1)
    queue.write(1)
    assert reject(queue, 1) == [b"0"]
    assert configure(broker, TOPIC_RESOURCE, queue.dlq, errors_deadletterqueue_group_enable="true") == 0
    assert len(letters(queue, 1)) == 1


def test_a_missing_queue_is_created_if_the_brokers_may_create_it(broker, queue):
    setting = {"errors_deadletterqueue_auto_create_topics_enable": "true"}
    assert configure(broker, BROKER_RESOURCE, "", **setting) == 0
    try:
        queue.write(1)
        assert reject(queue, 1) == [b"0"]
        assert len(letters(queue, 1)) == 1
    finally:
        configure(broker, BROKER_RESOURCE, "", errors_deadletterqueue_auto_create_topics_enable="false")


def test_a_record_too_large_for_the_queue_leaves_a_dead_letter_without_contents(broker, queue):
    broker.create_topic(queue.dlq, 1, configs={**MINE, "max.message.bytes": "2000"})
    configure(broker, GROUP_RESOURCE, queue.group, errors_deadletterqueue_copy_record_enable="true")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in (b"a" * 100, b"b" * 5000, b"c" * 100):
        producer.produce(queue.topic, value, partition=0)
    producer.flush()
    reject(queue, 3)
    assert [letter.value for letter in letters(queue, 3)] == [b"a" * 100, None, b"c" * 100]


def test_a_broker_that_restarts_writes_what_waits_once(broker, queue, make_restartable: Callable):
    dlq, other = queue.dlq, make_restartable()
    waiting = Queue(other, **{"errors.deadletterqueue.topic.name": dlq})
    waiting.dlq = dlq
    waiting.write(3)
    reject(waiting, 3)
    waiting.close()
    other.restart()
    other.create_topic(dlq, 1, configs=MINE)
    waiting.write(1)
    again = Queue.consumer(waiting)
    assert len(some(again, until=1)) == 1
    assert len(letters(waiting, 3)) == 3
    other.restart()
    with pytest.raises(ClientError, match="only 3"):
        waiting.broker.consume(dlq, 4, timeout=10)


@pytest.fixture
def make_restartable(tmp_path) -> Iterator[Callable[[], BarnabasBroker]]:
    opened: list[BarnabasBroker] = []

    def make() -> BarnabasBroker:
        settings = {"share.coordinator.state.topic.num.partitions": "1"}
        opened.append(BarnabasBroker(settings, data=tmp_path / "data").start())
        return opened[-1]

    yield make
    for broker in opened:
        broker.close()


@pytest.mark.parametrize("name", ["__letters", "a b"])
def test_the_name_of_a_queue_is_no_internal_topics(broker, queue, name):
    code = configure(broker, GROUP_RESOURCE, queue.group, errors_deadletterqueue_topic_name=name)
    assert code == ErrorCode.INVALID_CONFIG
