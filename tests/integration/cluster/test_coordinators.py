"""Coordinators of groups and transactions that fail or move, or are on other brokers than the partitions'
leaders.
"""

from __future__ import annotations

import time
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from barnabas.broker.coordinator.partitioning import partition_for
from barnabas.client import Admin

PARTITIONS = 4
PATIENCE = 60


@pytest.fixture
def cluster(barnabas_cluster):
    return barnabas_cluster(brokers=3, settings={"replica.lag.time.max.ms": "1000"})


def make_topic(cluster, name, partitions=3):
    cluster.create_topic(name, partitions)
    cluster.wait_in_sync(name)
    return name


def id_with(topic, cluster, leader):
    """Return an id that this broker coordinates."""
    for number in range(1000):
        key = f"id-{number}"
        if cluster.leader_of(topic, partition_for(key, PARTITIONS)) == leader:
            return key
    raise AssertionError(f"broker {leader} coordinates nothing of {topic}")


def producer(cluster, **settings):
    return Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, **settings})


def transactional(cluster, transactional_id, **settings):
    made = producer(
        cluster, **{"transactional.id": transactional_id, "transaction.timeout.ms": 60_000, **settings}
    )
    retried(lambda: made.init_transactions(PATIENCE))
    return made


def retried(call):
    """Repeat a call after errors that librdkafka leaves to the application."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return call()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise


def consumer(cluster, group, **settings):
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
            **settings,
        }
    )


def read(cluster, topic, count, partitions=3, timeout=PATIENCE):
    """Return `count` committed values of a topic, and those that arrive within another second."""
    reader = consumer(cluster, "reader")
    try:
        reader.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        values, deadline = [], time.monotonic() + timeout
        while len(values) < count and time.monotonic() < deadline:
            values += [m.value() for m in reader.consume(1000, 0.2) if m.error() is None]
        values += [m.value() for m in reader.consume(1000, 1.0) if m.error() is None]
        return sorted(values)
    finally:
        reader.close()


def committed(cluster, group, *partitions):
    reader = consumer(cluster, group)
    try:
        found = retried(lambda: reader.committed(list(partitions), PATIENCE))
        return [partition.offset for partition in found]
    finally:
        reader.close()


def commit(cluster, group, *offsets):
    reader = consumer(cluster, group)
    try:
        retried(lambda: reader.commit(offsets=list(offsets), asynchronous=False))
    finally:
        reader.close()


def start_coordinators(cluster, topic):
    """Wait until the internal topics exist, with all replicas in sync."""
    warm = transactional(cluster, "warm")
    warm.begin_transaction()
    warm.abort_transaction(PATIENCE)
    commit(cluster, "warm", TopicPartition(topic, 0, 0))
    cluster.wait_in_sync()


@pytest.mark.parametrize("factor", [None, "3"])
def test_the_first_group_and_transaction_begin_while_one_broker_of_three_is_dead(barnabas_cluster, factor):
    """Earlier, these topics could not be created, because 3 replicas required 3 brokers."""
    names = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")
    settings = {"replica.lag.time.max.ms": "1000"} | (dict.fromkeys(names, factor) if factor else {})
    cluster = barnabas_cluster(brokers=3, settings=settings)
    cluster.kill(3)
    cluster.create_topic("t", 3)
    sender = transactional(cluster, "first")
    sender.begin_transaction()
    sender.produce("t", b"x")
    sender.commit_transaction(PATIENCE)
    commit(cluster, "first", TopicPartition("t", 0, 1))
    assert committed(cluster, "first", TopicPartition("t", 0)) == [1]
    cluster.restart(3)
    cluster.wait_in_sync()
    with closing(Admin(cluster.bootstrap_servers)) as admin:
        for topic in admin.describe_topics(["t", "__consumer_offsets", "__transaction_state"]):
            assert all(sorted(each.replicas) == [1, 2, 3] for each in topic.partitions)
    assert read(cluster, "t", 1) == [b"x"]


def test_a_transaction_spans_leaders_and_coordinators_on_different_brokers(cluster):
    source, target = make_topic(cluster, "t"), make_topic(cluster, "target")
    start_coordinators(cluster, source)
    for coordinator in cluster.brokers:
        group = id_with("__consumer_offsets", cluster, coordinator % 3 + 1)
        sender = transactional(cluster, id_with("__transaction_state", cluster, coordinator))
        for commits in (True, False):
            sender.begin_transaction()
            for number in range(6):
                value = f"{coordinator}-{number}-{commits}".encode()
                sender.produce(target, value, partition=number % 3)
            offset = TopicPartition(source, 0, coordinator + (0 if commits else 100))
            reader = consumer(cluster, group)
            sender.send_offsets_to_transaction([offset], reader.consumer_group_metadata(), PATIENCE)
            reader.close()
            if commits:
                sender.commit_transaction(PATIENCE)
            else:
                sender.abort_transaction(PATIENCE)
        assert committed(cluster, group, TopicPartition(source, 0)) == [coordinator]
    expected = sorted(f"{c}-{n}-True".encode() for c in cluster.brokers for n in range(6))
    assert read(cluster, target, len(expected)) == expected


def test_committed_offsets_survive_their_coordinator(cluster):
    start_coordinators(cluster, make_topic(cluster, "t"))
    group = id_with("__consumer_offsets", cluster, 2)
    expected = []
    for number in range(20):
        commit(cluster, group, TopicPartition("t", 0, number))
        expected = [number]
    cluster.kill(2)
    assert committed(cluster, group, TopicPartition("t", 0)) == expected
    commit(cluster, group, TopicPartition("t", 0, 77))
    cluster.restart(2)
    cluster.wait_in_sync()
    assert committed(cluster, group, TopicPartition("t", 0)) == [77]


def test_a_decided_transaction_is_completed_by_the_next_coordinator(cluster):
    """The coordinator is killed between EndTxn and the markers, which it could not send."""
    target = make_topic(cluster, "target")
    start_coordinators(cluster, target)
    # The coordinator needs the controller to take the leader, which it cannot reach, out of its ISR.
    coordinator = cluster.controller()
    partition, leader = next(
        (number, leader)
        for number in range(3)
        if (leader := cluster.leader_of(target, number)) != coordinator
    )
    sender = transactional(cluster, id_with("__transaction_state", cluster, coordinator))
    sender.begin_transaction()
    sender.produce(target, b"decided", partition=partition)
    assert sender.flush(PATIENCE) == 0
    cluster.partition(coordinator, leader, one_way=True)
    sender.commit_transaction(PATIENCE)  # decided by the two that are in sync
    assert read(cluster, target, 1, timeout=1.0) == []
    cluster.kill(coordinator)
    cluster.heal()
    assert read(cluster, target, 1) == [b"decided"]
    retried(sender.begin_transaction)
    sender.produce(target, b"next", partition=partition)
    retried(lambda: sender.commit_transaction(PATIENCE))
    assert read(cluster, target, 2) == [b"decided", b"next"]


def test_an_open_transaction_of_a_killed_coordinator_goes_on_with_the_next(cluster):
    target = make_topic(cluster, "target")
    start_coordinators(cluster, target)
    sender = transactional(cluster, id_with("__transaction_state", cluster, 3))
    sender.begin_transaction()
    for number in range(3):
        sender.produce(target, b"before", partition=number)
    assert sender.flush(PATIENCE) == 0
    cluster.kill(3)
    for number in range(3):
        sender.produce(target, b"after", partition=number)
    retried(lambda: sender.commit_transaction(PATIENCE))
    assert read(cluster, target, 6) == [b"after"] * 3 + [b"before"] * 3


def test_coordinators_go_on_after_their_brokers_session_has_ended(cluster):
    target = make_topic(cluster, "target")
    start_coordinators(cluster, target)
    for broker in cluster.brokers:
        group = id_with("__consumer_offsets", cluster, broker)
        sender = transactional(cluster, id_with("__transaction_state", cluster, broker))
        commit(cluster, group, TopicPartition(target, 0, broker))
        sender.begin_transaction()
        sender.produce(target, b"%d" % broker, partition=0)
        cluster.expire_session(broker)
        retried(lambda sender=sender: sender.commit_transaction(PATIENCE))
        assert committed(cluster, group, TopicPartition(target, 0)) == [broker]
        commit(cluster, group, TopicPartition(target, 0, broker + 10))
        assert committed(cluster, group, TopicPartition(target, 0)) == [broker + 10]
        cluster.wait_in_sync()
    assert read(cluster, target, 3) == [b"1", b"2", b"3"]


def test_a_group_goes_on_while_its_coordinators_are_restarted_one_after_another(cluster):
    source = make_topic(cluster, "source")
    start_coordinators(cluster, source)
    reader = consumer(cluster, "rolling")
    reader.subscribe([source])
    sender = producer(cluster, **{"enable.idempotence": True})
    seen, sent = [], 0

    def pump(seconds):
        nonlocal sent
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            sender.produce(source, b"%d" % sent, partition=sent % 3)
            sent += 1
            sender.poll(0)
            message = reader.poll(0.02)
            if message is not None and message.error() is None:
                seen.append(int(message.value()))
                if len(seen) % 20 == 0:
                    retried(lambda: reader.commit(asynchronous=False))

    pump(2)
    for broker in cluster.brokers:
        cluster.restart(broker)
        pump(1)
        cluster.wait_in_sync()
    assert sender.flush(PATIENCE) == 0
    deadline = time.monotonic() + PATIENCE
    while len(set(seen)) < sent and time.monotonic() < deadline:
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            seen.append(int(message.value()))
    reader.close()
    assert set(seen) == set(range(sent))
    assert len(seen) - sent < 200  # what was read again since its offset was not committed yet
