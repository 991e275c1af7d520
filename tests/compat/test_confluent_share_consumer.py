"""Members of share groups with confluent-kafka's `ShareConsumer` (KIP-932).

`BARNABAS_COMPAT_BROKER=kafka make compat` runs the same scenarios against Apache Kafka.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer

from barnabas.client import Admin

PATIENCE = 60.0
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
#: seconds that a member polls in vain before the test believes that there is nothing for it
IN_VAIN_S = 1.5


class Member:
    """A member of a share group, with an explicit acknowledgement of each message."""

    def __init__(self, servers: str, name: str, **settings: Any) -> None:
        explicit = {"share.acknowledgement.mode": "explicit", "log_level": 0}
        self.consumer = ShareConsumer(
            {"bootstrap.servers": servers, "group.id": name, **explicit, **settings}
        )
        self.consumer.subscribe([name])

    def poll(self, seconds: float) -> list[Message]:
        messages = list(self.consumer.poll(seconds))
        assert [message.error() for message in messages if message.error() is not None] == []
        return messages

    def take(self, least: int = 1) -> list[Message]:
        """Return the messages of the first poll that has some; at least so many."""
        deadline = time.monotonic() + PATIENCE
        while not (messages := self.poll(0.5)):
            assert time.monotonic() < deadline, "no message comes"
        assert len(messages) >= least, told(messages)
        return messages

    def acknowledge(self, *acknowledged: tuple[Message, AcknowledgeType]) -> None:
        """Acknowledge messages, and wait until the broker has stored that."""
        for message, how in acknowledged:
            self.consumer.acknowledge(message, how)
        assert set(self.consumer.commit_sync(PATIENCE).values()) <= {None}

    def has_nothing(self) -> bool:
        return self.poll(IN_VAIN_S) == []


def told(messages: list[Message]) -> list[tuple[str, int | None]]:
    """Return the value and the delivery count of each message."""
    return [((message.value() or b"").decode(), message.delivery_count()) for message in messages]


@pytest.fixture
def name(broker: Any) -> Iterator[str]:
    """A topic with one partition, and a share group of its name that begins at its first record."""
    name = f"q-{uuid.uuid4().hex[:12]}"
    admin = Admin(broker.bootstrap)
    admin.create_topic(name, 1)
    admin.alter_configs("group", name, set={"share.auto.offset.reset": "earliest"})
    yield name
    admin.close()


@pytest.fixture
def send(broker: Any, name: str) -> Callable[..., None]:
    def send(*values: str) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for value in values:
            producer.produce(name, value)
        assert producer.flush(PATIENCE) == 0

    return send


@pytest.fixture
def member(broker: Any, name: str) -> Iterator[Callable[..., Member]]:
    opened: list[Member] = []

    def join(**settings: Any) -> Member:
        opened.append(Member(broker.bootstrap, name, **settings))
        return opened[-1]

    yield join
    for each in opened:
        each.consumer.close()


def test_each_message_is_treated_by_its_acknowledgement(send, member):
    send("accepted", "released", "rejected")
    worker = member()
    first = worker.take(3)
    assert told(first) == [("accepted", 1), ("released", 1), ("rejected", 1)]
    worker.acknowledge(*zip(first, (ACCEPT, RELEASE, REJECT), strict=True))
    (again,) = worker.take()
    assert told([again]) == [("released", 2)]
    worker.acknowledge((again, ACCEPT))
    assert worker.has_nothing()


def test_a_message_is_given_up_after_five_deliveries(send, member):
    send("poison")
    worker = member()
    for delivery in range(1, 6):
        (message,) = worker.take()
        assert told([message]) == [("poison", delivery)]
        worker.acknowledge((message, RELEASE))
    assert worker.has_nothing()


def test_the_messages_of_a_member_that_leaves_come_again(send, member, broker, name):
    send("a", "b")
    leaving = Member(broker.bootstrap, name)
    first, _ = leaving.take(2)
    leaving.acknowledge((first, ACCEPT))
    leaving.consumer.close()
    worker = member()
    (again,) = worker.take()
    assert told([again]) == [("b", 2)]
    worker.acknowledge((again, ACCEPT))


def test_members_share_a_partition(send, member):
    workers = [member(**{"max.poll.records": 1}) for _ in range(3)]
    for worker in workers:
        assert worker.has_nothing()
    for number in range(12):
        send(str(number))
    seen: list[str] = []
    deadline = time.monotonic() + PATIENCE
    while len(seen) < 12:
        assert time.monotonic() < deadline, seen
        for worker in workers:
            messages = worker.poll(0.2)
            seen += [value for value, _ in told(messages)]
            worker.acknowledge(*((message, ACCEPT) for message in messages))
    assert sorted(seen, key=int) == [str(number) for number in range(12)]


def test_the_callback_hears_of_acknowledged_offsets(send, member):
    send("a", "b")
    worker = member()
    heard: list[Any] = []
    worker.consumer.set_acknowledgement_commit_callback(lambda offsets, error: heard.append((offsets, error)))
    for message in worker.take(2):
        worker.consumer.acknowledge(message, ACCEPT)
    worker.consumer.commit_async()
    deadline = time.monotonic() + PATIENCE
    while not heard:
        assert time.monotonic() < deadline
        worker.poll(0.2)
    assert [error for _, error in heard] == [None]
    assert [set(offsets) for offsets in heard[0][0].values()] == [{0, 1}]
