"""Groups survive a restart: the broker reads offsets and members from `__consumer_offsets`."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, TopicPartition

from barnabas.testing import BarnabasBroker

FAST = {"heartbeat.interval.ms": 100, "session.timeout.ms": 6000, "reconnect.backoff.max.ms": 200}


def consumer(broker, group_id, **settings):
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **FAST,
            **settings,
        }
    )


def read(reader, count, seconds=60):
    values = []
    deadline = time.monotonic() + seconds
    while len(values) < count:
        assert time.monotonic() < deadline, values
        message = reader.poll(0.1)
        if message is not None and message.error() is None:
            values.append(message.value())
    return values


def test_members_stay_in_their_generation_over_a_restart(barnabas_fresh_broker):
    broker = barnabas_fresh_broker
    topic = broker.create_topic("orders")
    broker.produce(topic, b"1", b"2")
    events = []
    reader = consumer(broker, "app")
    reader.subscribe(
        [topic],
        on_assign=lambda _, partitions: events.append("assigned"),
        on_revoke=lambda _, partitions: events.append("revoked"),
        on_lost=lambda _, partitions: events.append("lost"),
    )
    assert read(reader, 2) == [b"1", b"2"]
    reader.commit(asynchronous=False)
    (before,) = _members(broker)
    broker.restart()
    broker.produce(topic, b"3")
    assert read(reader, 1) == [b"3"]
    reader.commit(asynchronous=False)
    assert events == ["assigned"]
    assert _members(broker) == [before]
    reader.close()
    assert _members(broker) == []


def test_next_consumer_goes_on_where_the_last_committed(barnabas_fresh_broker):
    broker = barnabas_fresh_broker
    topic = broker.create_topic("orders")
    broker.produce(topic, b"1", b"2", b"3")
    reader = consumer(broker, "app")
    reader.subscribe([topic])
    assert read(reader, 2) == [b"1", b"2"]
    reader.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
    reader.close()
    broker.restart()
    reader = consumer(broker, "app")
    reader.subscribe([topic])
    assert read(reader, 1) == [b"3"]
    reader.close()


@pytest.mark.parametrize("fsync", ["false", "true"])
@pytest.mark.parametrize("commits", [1, 200])
def test_acknowledged_commit_survives_a_crash(commits, fsync):
    with BarnabasBroker({"barnabas.acks.fsync": fsync}, mode="process") as broker:
        topic = broker.create_topic("orders")
        reader = consumer(broker, "app")
        for offset in range(1, commits + 1):
            reader.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        broker.kill()
        broker.start()
        (found,) = reader.committed([TopicPartition(topic, 0)], timeout=60)
        assert found.offset == commits
        reader.close()


def test_group_works_when_every_acknowledgement_waits_for_an_fsync():
    with BarnabasBroker({"barnabas.acks.fsync": "true"}) as broker:
        topic = broker.create_topic("orders")
        broker.produce(topic, b"1", b"2")
        reader = consumer(broker, "app")
        reader.subscribe([topic])
        assert read(reader, 2) == [b"1", b"2"]
        reader.commit(asynchronous=False)
        reader.close()
        assert _members(broker) == []
        (found,) = consumer(broker, "app").committed([TopicPartition(topic, 0)], timeout=60)
        assert found.offset == 2


def _members(broker):
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    described = admin.describe_consumer_groups(["app"])["app"].result(60)
    return [member.member_id for member in described.members]
