"""Consumers of kafka-python, one program a function."""

from __future__ import annotations

import time
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from tests.compat.programs.confluent_clients import removed
from tests.compat.programs.kafka_python_producers import consumer, made, producer
from tests.compat.programs.trace import Trace


def filled(see: Trace, suffix: str, count: int = 5, partitions: int = 1, **config: str) -> str:
    topic = made(see, suffix, partitions, **config)
    with producer(see) as writer:
        for partition in range(partitions):
            for number in range(count):
                writer.send(topic, b"%d" % number, partition=partition, timestamp_ms=1000 + 10 * number).get(
                    20
                )
    return topic


def polled(reader: KafkaConsumer, timeout_ms: int = 4000) -> Any:
    """Poll until there are records."""
    deadline = time.monotonic() + timeout_ms / 1000
    while True:
        found = reader.poll(300)
        if found or time.monotonic() > deadline:
            return {str(place): [each.offset for each in found[place]] for place in sorted(found)}


def positions(see: Trace) -> None:
    topic = filled(see, "t", partitions=2)
    zero, one, none = (TopicPartition(topic, each) for each in (0, 1, 9))
    reader = consumer(see)
    see.call("position unassigned", reader.position, zero)
    reader.assign([zero, one])
    see.call("assignment", reader.assignment)
    see.call("position", reader.position, zero, timeout_ms=5000)
    see.call("seek", reader.seek, zero, 3)
    see.call("position after seek", reader.position, zero)
    see.call("read", polled, reader)
    see.call("highwater", reader.highwater, zero)
    see.call("seek negative", reader.seek, zero, -1)
    see.call("seek far", reader.seek, zero, 1000)
    see.call("read after far", polled, reader)
    see.call("position after far", reader.position, zero)
    see.call("to the end", reader.seek_to_end)
    see.call("position at end", reader.position, zero, timeout_ms=5000)
    see.call("to the beginning", reader.seek_to_beginning, zero)
    see.call("position at beginning", reader.position, zero, timeout_ms=5000)
    see.call("beginnings", reader.beginning_offsets, [zero, one])
    see.call("ends", reader.end_offsets, [zero, one])
    see.call("beginning of none", reader.beginning_offsets, [none], timeout_ms=3000)
    see.call("end of no topic", reader.end_offsets, [TopicPartition(see.name("no"), 0)], timeout_ms=3000)
    for moment in (0, 1000, 1015, 1040, 5000, -1, -5):
        see.call(f"at {moment}", reader.offsets_for_times, {zero: moment})
    see.call("pause", reader.pause, zero)
    see.call("paused", reader.paused)
    see.call("read paused", polled, reader, 1000)
    see.call("resume", reader.resume, zero)
    see.call("read resumed", polled, reader)
    see.call("partitions", reader.partitions_for_topic, topic)
    see.call("partitions of no topic", reader.partitions_for_topic, see.name("no2"))
    see.call("topic is listed", lambda: topic in reader.topics())
    see.call("close", reader.close)
    see.call("poll closed", reader.poll)


def no_reset(see: Trace) -> None:
    topic = filled(see, "t")
    place = TopicPartition(topic, 0)
    reader = consumer(see, auto_offset_reset="none", group_id=see.name("g"))
    reader.assign([place])
    see.call("no offset", polled, reader)
    see.call("position", reader.position, place, timeout_ms=3000)
    reader.seek(place, 99)
    see.call("out of range", polled, reader)
    see.call("again", polled, reader)
    reader.close()


def commits(see: Trace) -> None:
    topic = filled(see, "t", partitions=2)
    zero, one = (TopicPartition(topic, each) for each in (0, 1))
    reader = consumer(see, group_id=see.name("g"), enable_auto_commit=False)
    reader.assign([zero, one])
    see.call("committed", reader.committed, zero, timeout_ms=5000)
    see.call("read", polled, reader)
    see.call("commit", reader.commit, timeout_ms=5000)
    see.call("committed after", reader.committed, zero, timeout_ms=5000)
    see.call("commit chosen", reader.commit, {zero: OffsetAndMetadata(2, "two", -1)})
    see.call("committed chosen", reader.committed, zero, metadata=True)
    see.call("commit far", reader.commit, {zero: OffsetAndMetadata(2000, "", 5)})
    see.call("committed far", reader.committed, zero, metadata=True)
    see.call("commit negative", reader.commit, {zero: OffsetAndMetadata(-1, "", -1)})
    see.call("large metadata", reader.commit, {zero: OffsetAndMetadata(1, "m" * 5000, -1)}, timeout_ms=5000)
    see.call(
        "no partition",
        reader.commit,
        {TopicPartition(topic, 9): OffsetAndMetadata(1, "", -1)},
        timeout_ms=3000,
    )
    see.call(
        "no topic",
        reader.commit,
        {TopicPartition(see.name("no"), 0): OffsetAndMetadata(1, "", -1)},
        timeout_ms=3000,
    )
    done: list[Any] = []
    see.call(
        "async",
        lambda: (
            type(
                reader.commit_async({zero: OffsetAndMetadata(3, "", -1)}, lambda *told: done.append(told))
            ).__name__
        ),
    )
    deadline = time.monotonic() + 5
    while not done and time.monotonic() < deadline:
        reader.poll(100)
    see.note("told", done)
    reader.close()
    plain = consumer(see, group_id=None)
    plain.assign([zero])
    see.call("commit without a group", plain.commit)
    see.call("committed without a group", plain.committed, zero)
    plain.close()
    for name in ("", " ", "x" * 300, "é"):
        odd = consumer(see, group_id=name, enable_auto_commit=False)
        odd.assign([zero])
        see.call(f"group {name}", odd.commit, {zero: OffsetAndMetadata(1, "", -1)}, timeout_ms=3000)
        odd.close()


class Listener(ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.told.append(("revoked", sorted(revoked)))

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.told.append(("assigned", sorted(assigned)))


def groups(see: Trace) -> None:
    topic = filled(see, "t", 3, partitions=4)
    group = see.name("g")
    first, second = consumer(see, group_id=group), consumer(see, group_id=group)
    listeners = Listener(), Listener()
    first.subscribe([topic], listener=listeners[0])
    see.call("subscription", first.subscription)
    read = polled(first, 10000)
    see.note("first reads something", bool(read))
    see.note("first", listeners[0].told[-1])  # before it knows the topic, the leader assigns nothing
    second.subscribe([topic], listener=listeners[1])
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and not (len(first.assignment()) == len(second.assignment()) == 2):
        first.poll(100)
        second.poll(100)
    see.note("counts", [len(first.assignment()), len(second.assignment())])
    see.note("second", [kind for kind, _ in listeners[1].told])
    second.close()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and len(first.assignment()) != 4:
        first.poll(100)
    see.note("all", first.assignment())
    see.call("unsubscribe", first.unsubscribe)
    see.call("assignment", first.assignment)
    see.call("poll without a subscription", first.poll, 100)
    first.close()


def patterns(see: Trace) -> None:
    for suffix in ("pa-1", "pa-2", "pb-1"):
        filled(see, suffix, 1)
    reader = consumer(see, group_id=see.name("g"), metadata_max_age_ms=1000)
    reader.subscribe(pattern=f"^{see.name('pa')}.*")
    got: set[Any] = set()
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline and len(got) < 2:
        got |= {each.topic for each in reader.poll(300)}
    see.note("topics", got)
    filled(see, "pa-3", 1)
    while time.monotonic() < deadline and len(got) < 3:
        got |= {each.topic for each in reader.poll(300)}
    see.note("topics later", got)
    see.call("subscription", reader.subscription)
    reader.close()
    reader = consumer(see, group_id=see.name("h"))
    see.call("invalid", reader.subscribe, pattern="(")
    see.call("invalid topic", reader.subscribe, ["a b"])
    reader.close()


def subscription_to_no_topic(see: Trace) -> None:
    reader = consumer(see, see.name("no"), group_id=see.name("g"), allow_auto_create_topics=False)
    see.call("poll", polled, reader, 2000)
    reader.close()


def static_members(see: Trace) -> None:
    topic = filled(see, "t", 2, partitions=2)
    options = {"group_id": see.name("g"), "group_instance_id": "one", "session_timeout_ms": 8000}
    first = consumer(see, topic, **options)
    see.note("first reads", bool(polled(first, 10000)))
    generation = first.group_metadata().generation_id
    first.close()
    second = consumer(see, topic, **options)
    second.poll(500)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and not second.assignment():
        second.poll(200)
    see.note("same generation", second.group_metadata().generation_id == generation)
    third = consumer(see, topic, **options)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and not third.assignment():
        third.poll(200)
    see.note("third", third.assignment())

    def fenced() -> None:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            second.poll(200)

    see.call("fenced", fenced)
    see.call(
        "fenced commit",
        second.commit,
        {TopicPartition(topic, 0): OffsetAndMetadata(1, "", -1)},
        timeout_ms=3000,
    )
    see.call("close fenced", second.close)
    third.close()


def slow_member(see: Trace) -> None:
    topic = filled(see, "t", 2)
    reader = consumer(
        see,
        topic,
        group_id=see.name("g"),
        max_poll_interval_ms=3000,
        session_timeout_ms=7000,
        heartbeat_interval_ms=500,
    )
    see.note("reads", bool(polled(reader, 10000)))
    time.sleep(5)
    see.call("commit late", reader.commit, timeout_ms=3000)
    see.call("poll late", lambda: bool(reader.poll(100)) or True)
    reader.close()


def session_timeouts(see: Trace) -> None:
    topic = filled(see, "t", 2)
    for seconds in (1, 4000):
        reader = consumer(
            see,
            topic,
            group_id=see.name(f"g{seconds}"),
            session_timeout_ms=seconds * 1000,
            heartbeat_interval_ms=300,
            request_timeout_ms=9_000_000,
            connections_max_idle_ms=10_000_000,
            max_poll_interval_ms=5_000_000,
        )
        see.call(f"session {seconds}", polled, reader)
        reader.close()


def isolation(see: Trace) -> None:
    topic = made(see, "t")
    place = TopicPartition(topic, 0)
    writer = producer(see, transactional_id=see.name("x"))
    writer.init_transactions()
    writer.begin_transaction()
    writer.send(topic, b"open").get(10)
    for level in ("read_committed", "read_uncommitted"):
        reader = consumer(see, isolation_level=level)
        reader.assign([place])
        see.call(f"{level} read", polled, reader, 1500)
        see.call(f"{level} end", reader.end_offsets, [place])
        see.call(f"{level} highwater", reader.highwater, place)
        reader.close()
    writer.abort_transaction()
    reader = consumer(see, isolation_level="read_committed")
    reader.assign([place])
    see.call("aborted read", polled, reader, 1500)
    see.call("position", reader.position, place)
    see.call("end", reader.end_offsets, [place])
    reader.close()
    writer.close()


def fetch_limits(see: Trace) -> None:
    topic = made(see, "t")
    with producer(see, batch_size=0) as writer:
        for number in range(6):
            writer.send(topic, b"%d" % number * 3000).get(20)
    for options in (
        {"max_partition_fetch_bytes": 100},
        {"fetch_max_bytes": 100},
        {"fetch_max_bytes": 7000, "max_partition_fetch_bytes": 7000},
        {"max_poll_records": 2},
        {"fetch_min_bytes": 30000, "fetch_max_wait_ms": 700},
        {"check_crcs": False},
    ):
        with consumer(see, **options) as reader:
            reader.assign([TopicPartition(topic, 0)])
            see.call(f"{options}", polled, reader)
            see.call(f"{options} then", polled, reader)


def deleted_topic_of_a_reader(see: Trace) -> None:
    topic = filled(see, "t")
    reader = consumer(see, allow_auto_create_topics=False, metadata_max_age_ms=2000)
    reader.assign([TopicPartition(topic, 0)])
    see.call("read", polled, reader)
    removed(see, topic)
    see.call("read deleted", polled, reader, 4000)
    see.call("position", reader.position, TopicPartition(topic, 0))
    see.call("end", reader.end_offsets, [TopicPartition(topic, 0)], timeout_ms=3000)
    reader.close()


def wrong_addresses(see: Trace) -> None:
    see.call("nothing listens", KafkaConsumer, bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=2000)
    see.call(
        "tls to plaintext",
        KafkaConsumer,
        bootstrap_servers=see.bootstrap,
        security_protocol="SSL",
        bootstrap_timeout_ms=3000,
    )
    see.call(
        "sasl to plaintext",
        KafkaConsumer,
        bootstrap_servers=see.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="a",
        sasl_plain_password="b",
        bootstrap_timeout_ms=3000,
    )
