"""Groups of the consumer protocol (KIP-848) with librdkafka: the owner of each partition as members join and
leave.
"""

from __future__ import annotations

import subprocess
import sys
import time
import uuid

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from barnabas.testing import BarnabasBroker

#: as fast as the broker allows: heartbeats every 100 ms, silent members out after eight seconds
FAST = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "8000",
}


@pytest.fixture(scope="module")
def broker():
    with BarnabasBroker(FAST) as running:
        yield running


class Reader:
    """A consumer that notes its records and its rebalances, and commits each record."""

    def __init__(self, servers, group, topics, **settings):
        protocol = settings.pop("protocol", "consumer")
        more = {"group.protocol": "consumer"} if protocol == "consumer" else CLASSIC
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 500,
                **more,
                **named,
            }
        )
        self.records = []
        self.events = []
        self.error = None
        self.consumer.subscribe(
            topics,
            on_assign=lambda _, partitions: self._note("assigned", partitions),
            on_revoke=lambda _, partitions: self._note("revoked", partitions),
            on_lost=lambda _, partitions: self._note("lost", partitions),
        )

    @property
    def partitions(self):
        return {(p.topic, p.partition) for p in self.consumer.assignment()}

    def poll(self):
        message = self.consumer.poll(0.02)
        if message is not None and message.error() is None:
            self.records.append((message.topic(), message.partition(), message.offset()))
            self._commit(message)
        elif message is not None:
            self.error = message.error()

    def _commit(self, message):
        try:
            self.consumer.commit(message, asynchronous=False)
        except KafkaException as error:
            # The group has just gone on: whoever gets the partition next reads the record again.
            assert error.args[0].code() in GONE_ON, error

    def _note(self, what, partitions):
        self.events.append((what, {(p.topic, p.partition) for p in partitions}))

    def moved(self):
        """Return its rebalances, without assignments that add no partition."""
        return [event for event in self.events if event[1]]


CLASSIC = {
    # Not cooperative-sticky: its assignments bear data of their own, so such a group stays classic.
    "partition.assignment.strategy": "range",
    "heartbeat.interval.ms": 100,
    "session.timeout.ms": 6000,
}
GONE_ON = (
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._ASSIGNMENT_LOST,
)


@pytest.fixture
def make_topic(broker):
    """Create topics. `name` begins with a text that no other test uses."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    prefix = uuid.uuid4().hex[:8]

    def make(suffix="t", partitions=4):
        name = f"{prefix}-{suffix}"
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(60)
        return name

    make.prefix = prefix
    make.admin = admin
    return make


@pytest.fixture
def topic(make_topic):
    return make_topic()


@pytest.fixture
def join(broker, topic):
    """Open members of one group for `topic`, which has four partitions by default."""
    opened = []
    group = uuid.uuid4().hex

    def make(*topics, **settings):
        opened.append(Reader(broker.bootstrap_servers, group, list(topics) or [topic], **settings))
        return opened[-1]

    make.group = group
    yield make
    for reader in opened:
        reader.consumer.close()


def until(condition, *readers, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, [(r.partitions, r.events, r.error) for r in readers]
        for reader in readers:
            reader.poll()


def shared(*readers, places=4):
    """Return whether the readers have all partitions together, each a fair part."""
    parts = [reader.partitions for reader in readers]
    sizes = [len(part) for part in parts]
    return len(set().union(*parts)) == sum(sizes) == places and max(sizes) - min(sizes) <= 1


def fill(broker, topic, count=400, partitions=4):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(60) == 0
    return {(topic, number % partitions, number // partitions) for number in range(count)}


def test_members_share_and_only_what_moves_is_revoked(join):
    first = join()
    until(lambda: shared(first), first)
    second = join()
    until(lambda: shared(first, second), first, second)
    assert [what for what, _ in first.moved()] == ["assigned", "revoked"]
    assert first.moved()[1][1] == second.partitions
    second.consumer.close()
    until(lambda: shared(first), first)


def test_fifth_of_five_members_idles_on_four_partitions(join):
    readers = [join() for _ in range(5)]
    until(lambda: shared(*readers), *readers)
    assert sorted(len(reader.partitions) for reader in readers) == [0, 1, 1, 1, 1]


def test_range_gives_neighbours(join):
    readers = [join(group_remote_assignor="range") for _ in range(2)]
    until(lambda: shared(*readers), *readers)
    parts = sorted(sorted(partition for _, partition in reader.partitions) for reader in readers)
    assert parts == [[0, 1], [2, 3]]


def test_no_record_is_missed_while_members_come_and_go(broker, join, topic):
    everything = fill(broker, topic)
    first = join()
    until(lambda: len(first.records) >= 50, first)
    second = join()
    until(lambda: len(second.records) >= 50, first, second)
    first.consumer.close()
    until(lambda: {*first.records, *second.records} == everything, second)
    # What was taken away had been committed: nothing comes twice.
    assert len(first.records + second.records) == len(everything)


def test_regular_expression_takes_in_topics_that_come_later(make_topic, join):
    one = make_topic("log-a", 2)
    make_topic("other", 2)
    reader = join(f"^{make_topic.prefix}-log-.*")
    until(lambda: reader.partitions == {(one, 0), (one, 1)}, reader)
    two = make_topic("log-b", 1)
    until(lambda: reader.partitions == {(one, 0), (one, 1), (two, 0)}, reader)


def test_invalid_regular_expression_is_told(make_topic, join):
    reader = join(f"^{make_topic.prefix}-a**")  # librdkafka lets it pass, RE2 does not
    until(lambda: reader.error, reader)
    assert "regular expression" in reader.error.str().lower()


def test_topic_that_grows_is_read_in_all_its_partitions(make_topic, join, topic):
    reader = join()
    until(lambda: shared(reader), reader)
    make_topic.admin.create_partitions([NewPartitions(topic, 6)])[topic].result(60)
    until(lambda: shared(reader, places=6), reader)


def test_static_member_comes_back_to_its_partitions_unnoticed(join):
    first = join(group_instance_id="a")
    second = join(group_instance_id="b")
    until(lambda: shared(first, second), first, second)
    noticed, kept = len(first.events), second.partitions
    second.consumer.close()
    back = join(group_instance_id="b")
    until(lambda: back.partitions == kept, first, back)
    assert len(first.events) == noticed


def test_second_member_of_one_instance_id_is_refused(join):
    first = join(group_instance_id="a")
    until(lambda: shared(first), first)
    second = join(group_instance_id="a")
    until(lambda: second.error, first, second)
    assert second.error.code() in (KafkaError._FATAL, KafkaError.UNRELEASED_INSTANCE_ID)
    assert shared(first)


def test_killed_member_is_out_after_its_session(broker, join, topic):
    reader = join()
    until(lambda: shared(reader), reader)
    program = f"""
import sys, time
from confluent_kafka import Consumer
consumer = Consumer({{"bootstrap.servers": "{broker.bootstrap_servers}", "group.id": "{join.group}",
                     "group.protocol": "consumer"}})
consumer.subscribe(["{topic}"])
while True:
    consumer.poll(0.05)
    if len(consumer.assignment()) == 2:
        print("there", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as other:
        until(lambda: len(reader.partitions) == 2, reader)
        assert other.stdout.readline() == b"there\n"
        other.kill()
    until(lambda: shared(reader), reader)


def test_commits_of_both_kinds_come_back_after_a_restart_of_the_member(broker, join, topic):
    everything = fill(broker, topic, 40)
    first = join()
    until(lambda: len(first.records) >= 20, first)
    first.consumer.commit(asynchronous=True)
    first.consumer.close()
    second = join()
    until(lambda: {*first.records, *second.records} == everything, second)
    assert len(first.records + second.records) == len(everything)


def test_admin_sees_members_assignments_and_types(join, make_topic, topic):
    reader = join(client_id="me")
    until(lambda: shared(reader), reader)
    listed = make_topic.admin.list_consumer_groups(request_timeout=60).result().valid
    (mine,) = [group for group in listed if group.group_id == join.group]
    assert (mine.type.name, mine.state.name) == ("CONSUMER", "STABLE")
    described = make_topic.admin.describe_consumer_groups([join.group])[join.group].result(60)
    (member,) = described.members
    assert (described.type.name, described.partition_assignor, member.client_id) == (
        "CONSUMER",
        "uniform",
        "me",
    )
    for assignment in (member.assignment, member.target_assignment):
        assert {(p.topic, p.partition) for p in assignment.topic_partitions} == reader.partitions


def test_members_change_their_protocol_one_by_one_and_back_and_no_record_is_missed(broker, join, topic):
    everything = fill(broker, topic, 800)
    readers = [join(protocol="classic") for _ in range(2)]
    until(lambda: shared(*readers), *readers)
    gone = []
    for protocol in ("consumer", "consumer", "classic", "classic"):
        gone.append(readers.pop(0))
        gone[-1].consumer.close()
        readers.append(join(protocol=protocol))
        until(lambda: shared(*readers), *readers)
        read = len(readers[-1].records)
        until(lambda: len(readers[-1].records) >= read + 20, *readers)  # noqa: B023
    everyone = [*gone, *readers]
    until(lambda: {r for reader in everyone for r in reader.records} == everything, *readers)
    assert sum(len(reader.records) for reader in everyone) < len(everything) + 40


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_group_goes_on_after_a_restart_of_the_broker(end):
    with BarnabasBroker(FAST, mode="process") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 4, 1)])["t"].result(60)
        everything = fill(broker, "t", 80)
        readers = [Reader(broker.bootstrap_servers, "g", ["t"]) for _ in range(2)]
        until(lambda: shared(*readers) and all(reader.records for reader in readers), *readers)
        before = [reader.partitions for reader in readers]
        getattr(broker, end)()
        broker.start()
        more = fill(broker, "t", 80)
        assert more == everything
        wanted = everything | {("t", partition, offset + 20) for _, partition, offset in everything}
        until(lambda: {record for reader in readers for record in reader.records} == wanted, *readers)
        assert [reader.partitions for reader in readers] == before
        for reader in readers:
            reader.consumer.close()
