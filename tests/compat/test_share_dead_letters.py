"""Dead letters of a share group (KIP-1191): Apache Kafka 4.4 writes the same ones.

`BARNABAS_KAFKA_VERSION=4.4.0 make compat` runs this comparison. Apache Kafka 4.2 has no dead letters.
"""

from __future__ import annotations

import time
import uuid
from typing import Any, NamedTuple

import pytest
from bench.artifacts import KAFKA_VERSION
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer

from barnabas.client import Admin, Consumer, Record

pytestmark = pytest.mark.skipif(KAFKA_VERSION < "4.4", reason="Apache Kafka has dead letters since 4.4")

PATIENCE = 120.0
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
PARTITIONS = 3
QUEUE_PARTITIONS = 2
#: the answer to each record of a partition
ANSWERS = {b"rejected": REJECT, b"accepted": ACCEPT, b"released": RELEASE, b"also rejected": REJECT}
GIVEN_UP = PARTITIONS * 3


class Letter(NamedTuple):
    """The parts of a dead letter that the test compares."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @classmethod
    def of(cls, record: Record) -> Letter:
        return cls(record.partition, record.key, record.value, record.headers)


def letters_of(servers: str, name: str, *, is_copy: bool) -> list[Letter]:
    """Let a group give up records of each partition. Return its dead letters, in a fixed order."""
    admin = Admin(servers)
    admin.create_topic(name, PARTITIONS)
    queue = f"dlq.{name}"
    admin.create_topic(queue, QUEUE_PARTITIONS, configs={"errors.deadletterqueue.group.enable": "true"})
    admin.alter_configs(
        "group",
        name,
        set={
            "share.auto.offset.reset": "earliest",
            "share.delivery.count.limit": "2",
            "errors.deadletterqueue.topic.name": queue,
            "errors.deadletterqueue.copy.record.enable": str(is_copy).lower(),
        },
    )
    admin.close()
    producer = Producer({"bootstrap.servers": servers})
    for partition in range(PARTITIONS):
        for value in ANSWERS:
            producer.produce(name, value, key=b"of %d" % partition, partition=partition)
    producer.flush()
    answer_all(servers, name)
    with Consumer(servers, queue) as consumer:
        return sorted(map(Letter.of, consumer.take(GIVEN_UP, PATIENCE)), key=lambda each: each.headers)


def answer_all(servers: str, name: str) -> None:
    """Answer each delivery of each record; a released one comes twice."""
    settings: dict[str, Any] = {"share.acknowledgement.mode": "explicit", "log_level": 0}
    member = ShareConsumer({"bootstrap.servers": servers, "group.id": name, **settings})
    member.subscribe([name])
    left = PARTITIONS * (len(ANSWERS) + 1)
    deadline = time.monotonic() + PATIENCE
    while left > 0:
        assert time.monotonic() < deadline, f"{left} deliveries are missing"
        for message in member.poll(0.5):
            assert message.error() is None
            member.acknowledge(message, ANSWERS[message.value() or b""])
            left -= 1
        assert set(member.commit_sync(PATIENCE).values()) <= {None}
    member.close()


@pytest.mark.parametrize("is_copy", [False, True], ids=["headers-only", "copies"])
def test_dead_letters_are_those_of_apache_kafka(broker, kafka, is_copy):
    name = f"q-{uuid.uuid4().hex[:12]}"
    ours, theirs = (letters_of(peer.bootstrap, name, is_copy=is_copy) for peer in (broker, kafka))
    assert ours == theirs
