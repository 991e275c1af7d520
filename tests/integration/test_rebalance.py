"""Groups of real consumers (librdkafka): the owner of each partition as members join, leave and return."""

from __future__ import annotations

import time
import uuid

import pytest

FAST = {"heartbeat.interval.ms": 100, "session.timeout.ms": 6000, "auto.offset.reset": "earliest"}


class Reader:
    """A consumer that notes its records and its rebalances."""

    def __init__(self, settings, topic):
        from confluent_kafka import Consumer

        self.consumer = Consumer({**FAST, "enable.auto.commit": False, **settings})
        self.records = []
        self.events = []
        self.error = None
        self.consumer.subscribe(
            [topic],
            on_assign=lambda _, partitions: self._note("assigned", partitions),
            on_revoke=lambda _, partitions: self._note("revoked", partitions),
            on_lost=lambda _, partitions: self._note("lost", partitions),
        )

    @property
    def partitions(self):
        return {p.partition for p in self.consumer.assignment()}

    def poll(self):
        message = self.consumer.poll(0.02)
        if message is not None and message.error() is None:
            self.records.append((message.partition(), message.offset()))
            self._commit(message)
        elif message is not None:
            self.error = message.error()

    def _commit(self, message):
        from confluent_kafka import KafkaError, KafkaException

        try:
            self.consumer.commit(message, asynchronous=False)
        except KafkaException as error:
            # The group has just gone on: whoever gets the partition next reads the record again.
            assert error.args[0].code() in (KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS)

    def _note(self, what, partitions):
        self.events.append((what, {p.partition for p in partitions}))


@pytest.fixture
def topic(make_topic):
    return make_topic(partitions=4).name


@pytest.fixture
def group(barnabas_broker, topic):
    """Open members of one group for a topic of four partitions."""
    opened = []
    group_id = uuid.uuid4().hex

    def join(**settings):
        settings = {
            "bootstrap.servers": barnabas_broker.bootstrap_servers,
            "group.id": group_id,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        opened.append(Reader(settings, topic))
        return opened[-1]

    yield join
    for reader in opened:
        reader.consumer.close()


def until(condition, *readers, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, [(r.partitions, r.events, r.error) for r in readers]
        for reader in readers:
            reader.poll()


def shared(*readers):
    """Return whether the readers have all four partitions together, each a fair part."""
    parts = [reader.partitions for reader in readers]
    return set().union(*parts) == {0, 1, 2, 3} and all(len(part) == 4 // len(readers) for part in parts)


def test_cooperative_member_goes_on_with_what_it_keeps(group):
    first = group(partition_assignment_strategy="cooperative-sticky")
    until(lambda: shared(first), first)
    second = group(partition_assignment_strategy="cooperative-sticky")
    until(lambda: shared(first, second), first, second)
    (revoked,) = [partitions for what, partitions in first.events if what == "revoked"]
    assert revoked == second.partitions
    assert all(what != "lost" for what, _ in first.events + second.events)


def test_eager_member_gives_up_everything_before_it_gets_its_part(group):
    first = group(partition_assignment_strategy="range")
    until(lambda: shared(first), first)
    second = group(partition_assignment_strategy="range")
    until(lambda: shared(first, second), first, second)
    assert first.events[:2] == [("assigned", {0, 1, 2, 3}), ("revoked", {0, 1, 2, 3})]


def test_static_member_comes_back_to_its_partitions_unnoticed(group):
    patient = {"session_timeout_ms": 45_000}  # longer than it stays away on any machine
    first = group(group_instance_id="a", **patient)
    second = group(group_instance_id="b", **patient)
    until(lambda: shared(first, second), first, second)
    noticed, kept = len(first.events), second.partitions
    second.consumer.close()
    back = group(group_instance_id="b", **patient)
    until(lambda: back.partitions == kept, first, back)
    assert len(first.events) == noticed


def test_replaced_static_member_is_fenced(group):
    from confluent_kafka import KafkaError

    first = group(group_instance_id="a")
    until(lambda: shared(first), first)
    second = group(group_instance_id="a")
    until(lambda: shared(second) and first.error, first, second)
    assert first.error.code() == KafkaError._FATAL


def test_commit_with_metadata_comes_back(barnabas_broker, topic):
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": barnabas_broker.bootstrap_servers, "group.id": uuid.uuid4().hex}
    )
    consumer.commit(offsets=[TopicPartition(topic, 1, 42, "bookmark")], asynchronous=False)
    found = consumer.committed([TopicPartition(topic, partition) for partition in (1, 2)], timeout=60)
    assert [(p.partition, p.offset, p.metadata) for p in found] == [(1, 42, "bookmark"), (2, -1001, None)]
    consumer.close()


def test_joining_to_the_first_record_takes_no_time(barnabas_broker, group, topic):
    # Kafka's default is to wait three seconds for more members; the embedded broker does not wait.
    barnabas_broker.produce(topic, b"x")

    def seconds_to_first_record():
        begin = time.monotonic()
        reader = group(group_id=uuid.uuid4().hex)
        until(lambda: reader.records, reader)
        return time.monotonic() - begin

    # A busy machine may take as long, but hardly five times: a wait would be met each time.
    assert any(seconds_to_first_record() < 2.5 for _ in range(5))
