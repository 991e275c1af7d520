"""Share groups of librdkafka's ShareConsumer: members share partitions and leave, and the lag follows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import ShareConsumer
from tests.integration.conftest import Wire, use_share_groups

from barnabas.base.types import TopicPartition
from barnabas.client import Admin
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.testing import BarnabasBroker

PATIENCE = 60.0
_GROUP = 32


@pytest.fixture(scope="module")
def broker() -> Iterator[BarnabasBroker]:
    with BarnabasBroker() as broker:
        wire = Wire(broker.bootstrap_servers)
        use_share_groups(wire)
        wire.close()
        yield broker


@pytest.fixture
def admin(broker: BarnabasBroker) -> Iterator[Admin]:
    admin = Admin(broker.bootstrap_servers)
    yield admin
    admin.close()


@pytest.fixture
def consumer(broker: BarnabasBroker) -> Iterator[Callable[..., ShareConsumer]]:
    """Make a member of a group that begins with the first record."""
    opened: list[ShareConsumer] = []

    def subscribe(group: str, topic: str, **settings: Any) -> ShareConsumer:
        wire = Wire(broker.bootstrap_servers)
        earliest = AlterableConfig(name="share.auto.offset.reset", value="earliest")
        resource = AlterConfigsResource(resource_type=_GROUP, resource_name=group, configs=[earliest])
        (changed,) = wire(IncrementalAlterConfigsRequest(resources=[resource])).responses
        assert changed.error_code == 0
        wire.close()
        opened.append(
            ShareConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group, **settings})
        )
        opened[-1].subscribe([topic])
        return opened[-1]

    yield subscribe
    for each in opened:
        each.close()


def take(count: int, *consumers: ShareConsumer) -> list[list[str]]:
    """Poll the members in turn until they have `count` records together. Return the values of each."""
    taken: list[list[str]] = [[] for _ in consumers]
    deadline = time.monotonic() + PATIENCE
    while sum(map(len, taken)) < count:
        assert time.monotonic() < deadline, taken
        for consumer, values in zip(consumers, taken, strict=True):
            for message in consumer.poll(0.2):
                assert message.error() is None, message.error()
                values.append(message.value().decode())
    return taken


def until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_members_of_a_share_group_get_each_record_once(broker, admin, consumer):
    admin.create_topic("once", partitions=2)
    numbers = [str(number) for number in range(200)]
    broker.produce("once", *numbers)
    members = [consumer("once", "once") for _ in range(3)]
    taken = take(200, *members)
    assert sorted(number for values in taken for number in values) == sorted(numbers)
    described = admin.describe_group("once")
    assert (described.type, described.state, len(described.members)) == ("share", "Stable", 3)
    assert {place for member in described.members for place in member.assignment} == {
        TopicPartition("once", 0),
        TopicPartition("once", 1),
    }


def test_the_members_that_stay_get_the_records_of_one_that_leaves(broker, admin, consumer):
    admin.create_topic("leave", partitions=2)
    leaver, stayer = consumer("leave", "leave"), consumer("leave", "leave")
    broker.produce("leave", *"abcd")
    take(4, leaver, stayer)
    until(lambda: len(admin.describe_group("leave").members) == 2)
    leaver.close()
    until(lambda: len(admin.describe_group("leave").members) == 1)
    broker.produce("leave", *"efghijkl")
    (rest,) = take(8, stayer)
    assert set("efghijkl") <= set(rest)


def test_the_lag_is_zero_when_all_records_are_acknowledged(broker, admin, consumer):
    admin.create_topic("lag")
    broker.produce("lag", *"abcde")
    member = consumer("lag", "lag")
    take(5, member)
    member.commit_sync(30)  # the records of the last poll are acknowledged
    until(lambda: admin.share_offsets("lag")[TopicPartition("lag", 0)] == (5, 0))
    broker.produce("lag", *"fgh")
    until(lambda: admin.share_offsets("lag")[TopicPartition("lag", 0)].lag == 3)
    member.close()
    admin.set_share_offsets("lag", {TopicPartition("lag", 0): 2})
    again = consumer("lag", "lag")
    assert take(6, again) == [list("cdefgh")]
