"""Producers, consumers and the admin client of aiokafka, one program a function."""

from __future__ import annotations

import asyncio
import ssl
import time
from contextlib import suppress
from typing import Any

from aiokafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    OffsetAndMetadata,
    TopicPartition,
)
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from tests.compat.programs.kafka_python_producers import made
from tests.compat.programs.trace import Trace


async def topic_of(see: Trace, suffix: str, partitions: int = 1, **config: str) -> str:
    return await asyncio.to_thread(made, see, suffix, partitions, **config)


async def producer(see: Trace, **options: Any) -> AIOKafkaProducer:
    writer = AIOKafkaProducer(
        bootstrap_servers=see.bootstrap, **{"client_id": "programs", "request_timeout_ms": 8000, **options}
    )
    await writer.start()
    return writer


async def consumer(see: Trace, *topics: str, **options: Any) -> AIOKafkaConsumer:
    usual = {"client_id": "programs", "auto_offset_reset": "earliest"}
    reader = AIOKafkaConsumer(*topics, bootstrap_servers=see.bootstrap, **{**usual, **options})
    await reader.start()
    return reader


async def polled(reader: AIOKafkaConsumer, timeout: float = 4.0) -> Any:
    deadline = time.monotonic() + timeout
    while True:
        found = await reader.getmany(timeout_ms=300)
        if found or time.monotonic() > deadline:
            return {str(place): [each.offset for each in found[place]] for place in sorted(found)}


async def filled(see: Trace, suffix: str, count: int = 5, partitions: int = 1, **config: str) -> str:
    topic = await topic_of(see, suffix, partitions, **config)
    writer = await producer(see)
    for partition in range(partitions):
        for number in range(count):
            await writer.send_and_wait(
                topic, b"%d" % number, partition=partition, timestamp_ms=1000 + 10 * number
            )
    await writer.stop()
    return topic


async def everything_read(see: Trace, topic: str, partitions: int = 1, **options: Any) -> None:
    reader = await consumer(see, **options)
    reader.assign([TopicPartition(topic, each) for each in range(partitions)])
    records = []
    while found := await reader.getmany(timeout_ms=1200):
        records += [each for place in sorted(found) for each in found[place]]
    see.note("read", sorted(records, key=lambda each: (each.partition, each.offset)))
    await reader.stop()


async def producing(see: Trace) -> None:
    topic = await topic_of(see, "t", 3)
    for options in (
        {"acks": 1},
        {"acks": "all"},
        {"enable_idempotence": True},
        {"compression_type": "gzip"},
        {"compression_type": "snappy"},
        {"compression_type": "lz4"},
        {"compression_type": "zstd"},
        {"linger_ms": 50},
        {"acks": 0},  # the last one: it is not known when the broker has its records
    ):
        writer = await producer(see, **options)
        await see.wait(f"{options}", writer.send_and_wait(topic, b"v" * 100, key=b"k", headers=[("h", b"1")]))
        await see.wait(f"{options} null", writer.send_and_wait(topic, None, key=b"k"))
        await see.wait(
            f"{options} time", writer.send_and_wait(topic, b"v", timestamp_ms=1234567, partition=1)
        )
        await see.wait(f"{options} no partition", writer.send_and_wait(topic, b"v", partition=9))
        batch = writer.create_batch()
        batch.append(key=b"a", value=b"b", timestamp=None)
        batch.append(key=b"a", value=b"b", timestamp=123)
        await see.wait(f"{options} batch", await writer.send_batch(batch, topic, partition=2))
        await see.wait(f"{options} partitions", writer.partitions_for(topic))
        await see.wait(f"{options} stop", writer.stop())
    await everything_read(see, topic, 3)


async def rejected(see: Trace) -> None:
    small = await topic_of(see, "small", max_message_bytes="2000")
    compact = await topic_of(see, "compact", cleanup_policy="compact")
    timed = await topic_of(see, "timed", message_timestamp_before_max_ms="1000")
    appended = await topic_of(see, "appended", message_timestamp_type="LogAppendTime")
    for idempotent in (False, True):
        writer = await producer(see, enable_idempotence=idempotent, max_request_size=5_000_000)
        await see.wait(f"{idempotent} large", writer.send_and_wait(small, b"v" * 3000))
        await see.wait(f"{idempotent} after large", writer.send_and_wait(small, b"v"))
        await see.wait(
            f"{idempotent} above the default", writer.send_and_wait(compact, b"v" * 2_000_000, key=b"k")
        )
        await see.wait(
            f"{idempotent} above the client", writer.send_and_wait(compact, b"v" * 6_000_000, key=b"k")
        )
        await see.wait(f"{idempotent} no key", writer.send_and_wait(compact, b"v"))
        await see.wait(f"{idempotent} after no key", writer.send_and_wait(compact, b"v", key=b"k"))
        await see.wait(f"{idempotent} early", writer.send_and_wait(timed, b"v", timestamp_ms=5))
        await see.wait(f"{idempotent} after early", writer.send_and_wait(timed, b"v"))
        await see.wait(f"{idempotent} appended", writer.send_and_wait(appended, b"v", timestamp_ms=5))
        await see.wait(f"{idempotent} auto", writer.send_and_wait(see.name(f"auto{idempotent}"), b"v"))
        for name in ("a b", "", ".", "x" * 250):
            await see.wait(f"{idempotent} name {name}", writer.send_and_wait(name, b"v"), 3)
        await see.wait(f"{idempotent} partitions of an invalid name", writer.partitions_for("a b"), 3)
        await see.wait(f"{idempotent} stop", writer.stop())
        await see.wait(f"{idempotent} closed", writer.send(small, b"v"))


async def transactions(see: Trace) -> None:
    topic = await topic_of(see, "t")
    group = see.name("g")
    place = TopicPartition(topic, 0)
    writer = await producer(see, transactional_id=see.name("x"))
    await see.wait("send outside", writer.send(topic, b"v"))
    for end in ("commit", "abort", "commit"):
        await see.wait("begin", writer.begin_transaction())
        await see.wait("begin twice", writer.begin_transaction())
        await see.wait("send", writer.send_and_wait(topic, end.encode()))
        await see.wait(
            "offsets", writer.send_offsets_to_transaction({place: OffsetAndMetadata(1, "m")}, group)
        )
        await see.wait(end, getattr(writer, f"{end}_transaction")())
    await see.wait("commit none", writer.commit_transaction())
    await see.wait("begin", writer.begin_transaction())
    await see.wait("too large", writer.send_and_wait(topic, b"v" * 1_048_500))
    await see.wait("commit after too large", writer.commit_transaction())
    with suppress(Exception):
        await writer.abort_transaction()
    await see.wait("begin", writer.begin_transaction())
    await see.wait("send", writer.send_and_wait(topic, b"open"))
    other = await producer(see, transactional_id=see.name("x"))
    await see.wait("fenced send", writer.send_and_wait(topic, b"fenced"))
    await see.wait("fenced commit", writer.commit_transaction())
    await see.wait("fenced abort", writer.abort_transaction())
    await see.wait("fenced stop", writer.stop())
    await see.wait("other begin", other.begin_transaction())
    await see.wait("other send", other.send_and_wait(topic, b"other"))
    await see.wait("other commit", other.commit_transaction())
    await other.stop()
    await everything_read(see, topic, isolation_level="read_committed")
    reader = await consumer(see, group_id=group)
    await see.wait("committed", reader.committed(place))
    await reader.stop()
    long = AIOKafkaProducer(
        bootstrap_servers=see.bootstrap, transactional_id=see.name("l"), transaction_timeout_ms=99_000_000
    )
    await see.wait("long timeout", long.start(), 8)
    with suppress(Exception):
        await asyncio.wait_for(long.stop(), 3)


async def consuming(see: Trace) -> None:
    topic = await filled(see, "t", 5, partitions=2)
    zero, one = (TopicPartition(topic, each) for each in (0, 1))
    reader = await consumer(see, group_id=see.name("g"), enable_auto_commit=False)
    reader.assign([zero, one])
    await see.wait("committed", reader.committed(zero))
    await see.wait("position", reader.position(zero))
    await see.wait("read", polled(reader))
    see.call("highwater", reader.highwater, zero)
    see.call("lso", reader.last_stable_offset, zero)
    see.call("poll timestamp", reader.last_poll_timestamp, zero)
    see.call("seek negative", reader.seek, zero, -1)
    see.call("seek", reader.seek, zero, 3)
    await see.wait("getone", reader.getone(zero))
    see.call("far", reader.seek, zero, 1000)
    await see.wait("after far", polled(reader))
    await see.wait("to the end", reader.seek_to_end())
    await see.wait("position at the end", reader.position(zero))
    await see.wait("to the beginning", reader.seek_to_beginning(zero))
    await see.wait("to committed", reader.seek_to_committed(zero))
    await see.wait("beginnings", reader.beginning_offsets([zero, one]))
    await see.wait("ends", reader.end_offsets([zero, one]))
    await see.wait("end of no partition", reader.end_offsets([TopicPartition(topic, 9)]), 3)
    for moment in (0, 1015, 1040, 5000, -1):
        await see.wait(f"at {moment}", reader.offsets_for_times({zero: moment}))
    see.call("pause", reader.pause, zero)
    see.call("paused", reader.paused)
    await see.wait("commit", reader.commit({zero: 2}))
    await see.wait("commit metadata", reader.commit({zero: (3, "meta")}))
    await see.wait("committed now", reader.committed(zero))
    await see.wait("commit far", reader.commit({zero: 3000}))
    await see.wait("commit large metadata", reader.commit({zero: (1, "m" * 5000)}))
    await see.wait("commit no partition", reader.commit({TopicPartition(topic, 9): 1}), 4)
    see.call("partitions", reader.partitions_for_topic, topic)
    await see.wait("stop", reader.stop())
    await see.wait("closed", reader.getmany())
    none = await consumer(see, auto_offset_reset="none", group_id=see.name("n"))
    none.assign([zero])
    await see.wait("no offset", polled(none))
    none.seek(zero, 99)
    await see.wait("out of range", polled(none))
    await see.wait("out of range getone", none.getone(), 3)
    await none.stop()
    lone = await consumer(see)
    lone.assign([zero])
    await see.wait("commit without a group", lone.commit())
    await lone.stop()
    for name in ("", "x" * 300, "é"):
        odd = await consumer(see, group_id=name, enable_auto_commit=False)
        odd.assign([zero])
        await see.wait(f"group {name}", odd.commit({zero: 1}), 5)
        await odd.stop()


class Listener(ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.told: list[Any] = []

    async def on_partitions_revoked(self, revoked: Any) -> None:
        self.told.append(("revoked", len(revoked)))

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self.told.append(("assigned", len(assigned)))


async def groups(see: Trace) -> None:
    topic = await filled(see, "t", 2, partitions=4)
    group = see.name("g")
    options = {"group_id": group, "session_timeout_ms": 8000, "heartbeat_interval_ms": 500}
    first, second = await consumer(see, **options), await consumer(see, **options)
    listeners = Listener(), Listener()
    first.subscribe([topic], listener=listeners[0])
    see.note("reads", bool(await polled(first, 10)))
    second.subscribe([topic], listener=listeners[1])
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and not (len(first.assignment()) == len(second.assignment()) == 2):
        await asyncio.gather(first.getmany(timeout_ms=100), second.getmany(timeout_ms=100))
    see.note("listeners", [each.told for each in listeners])
    await see.wait("stop one", second.stop())
    while time.monotonic() < deadline and len(first.assignment()) < 4:
        await first.getmany(timeout_ms=100)
    see.note("all", first.assignment())
    see.call("unsubscribe", first.unsubscribe)
    await see.wait("stop", first.stop())
    static = await consumer(see, topic, group_instance_id="one", **options)
    await polled(static, 10)
    await see.wait("stop static", static.stop())
    again = await consumer(see, topic, group_instance_id="one", **options)
    await see.wait("static again", polled(again, 3))
    see.note("assignment of static", again.assignment())
    await again.stop()
    short = AIOKafkaConsumer(
        topic,
        bootstrap_servers=see.bootstrap,
        group_id=see.name("short"),
        session_timeout_ms=1000,
        heartbeat_interval_ms=300,
    )
    await see.wait("short session", short.start(), 5)
    await see.wait("short session read", polled(short, 2), 5)
    with suppress(Exception):
        await short.stop()
    pattern = await consumer(see, group_id=see.name("p"), metadata_max_age_ms=1000)
    pattern.subscribe(pattern=f"^{see.name('')}.*")
    see.note("pattern reads", bool(await polled(pattern, 8)))
    see.note("pattern assignment", pattern.assignment())
    await pattern.stop()
    slow = await consumer(
        see,
        topic,
        group_id=see.name("slow"),
        max_poll_interval_ms=2000,
        session_timeout_ms=6000,
        heartbeat_interval_ms=300,
    )
    see.note("slow reads", bool(await polled(slow, 8)))
    await asyncio.sleep(4)
    await see.wait("slow commit", slow.commit(), 5)
    await see.wait("slow read", polled(slow, 2))
    await slow.stop()
    nothing = await consumer(see, see.name("created"), group_id=see.name("c"))
    await see.wait("created", polled(nothing, 2))
    await nothing.stop()
    bad = AIOKafkaConsumer("a b", bootstrap_servers=see.bootstrap, group_id=see.name("bad"))
    await see.wait("invalid topic", bad.start(), 6)
    with suppress(Exception):
        await bad.stop()


async def isolation(see: Trace) -> None:
    topic = await topic_of(see, "t")
    place = TopicPartition(topic, 0)
    writer = await producer(see, transactional_id=see.name("x"))
    await writer.begin_transaction()
    await writer.send_and_wait(topic, b"open")
    for level in ("read_committed", "read_uncommitted"):
        reader = await consumer(see, isolation_level=level)
        reader.assign([place])
        await see.wait(f"{level} read", polled(reader, 1.5))
        await see.wait(f"{level} end", reader.end_offsets([place]))
        see.call(f"{level} highwater", reader.highwater, place)
        see.call(f"{level} lso", reader.last_stable_offset, place)
        await reader.stop()
    await writer.abort_transaction()
    reader = await consumer(see, isolation_level="read_committed")
    reader.assign([place])
    await see.wait("aborted", polled(reader, 1.5))
    await see.wait("position", reader.position(place))
    await reader.stop()
    await writer.stop()


async def administration(see: Trace) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=see.bootstrap, client_id="programs")
    await see.wait("start", admin.start())
    name, none = see.name("t"), see.name("no")
    await see.wait("create", admin.create_topics([NewTopic(name, 3, 1)]))
    for label, topic in (
        ("again", NewTopic(name, 3, 1)),
        ("two replicas", NewTopic(see.name("a"), 1, 2)),
        ("no partitions", NewTopic(see.name("a"), 0, 1)),
        ("invalid name", NewTopic("a b", 1, 1)),
        ("unknown setting", NewTopic(see.name("a"), 1, 1, topic_configs={"no.such": "1"})),
        ("bad setting", NewTopic(see.name("a"), 1, 1, topic_configs={"retention.ms": "x"})),
        ("assigned", NewTopic(see.name("b"), -1, -1, replica_assignments={0: [1]})),
    ):
        await see.wait(f"create {label}", admin.create_topics([topic]))
    await see.wait("create dry", admin.create_topics([NewTopic(see.name("d"), 1, 1)], validate_only=True))
    deadline = time.monotonic() + 20  # Kafka answers before its broker knows the topic
    while name not in (topics := await admin.list_topics()) and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    see.note("listed", name in topics)
    see.note(
        "describe",
        sorted(each["partition"] for each in (await admin.describe_topics([name]))[0]["partitions"]),
    )
    await see.wait("describe invalid", admin.describe_topics(["a b"]))
    await see.wait("cluster", admin.describe_cluster())
    await see.wait("grow", admin.create_partitions({name: NewPartitions(5)}))
    await see.wait("grow fewer", admin.create_partitions({name: NewPartitions(2)}))
    await see.wait("grow none", admin.create_partitions({none: NewPartitions(2)}))
    resource = ConfigResource(ConfigResourceType.TOPIC, name, configs={"retention.ms": "6000"})
    await see.wait("alter", admin.alter_configs([resource]))
    described = [ConfigResource(ConfigResourceType.TOPIC, name, configs={"retention.ms": None})]
    while "6000" not in str(await admin.describe_configs(described)) and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    await see.wait("describe config", admin.describe_configs(described, include_synonyms=True))
    await see.wait(
        "alter bad",
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, configs={"retention.ms": "x"})]),
    )
    await see.wait(
        "alter none",
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, none, configs={"retention.ms": "1"})]),
    )
    await see.wait(
        "describe broker",
        admin.describe_configs(
            [ConfigResource(ConfigResourceType.BROKER, "1", configs={"num.partitions": None})]
        ),
    )
    filled_topic = await filled(see, "f", 4)
    place = TopicPartition(filled_topic, 0)
    await see.wait("delete records", admin.delete_records({place: RecordsToDelete(before_offset=2)}))
    await see.wait("delete far", admin.delete_records({place: RecordsToDelete(before_offset=99)}))
    await see.wait(
        "delete of none", admin.delete_records({TopicPartition(none, 0): RecordsToDelete(before_offset=1)}), 5
    )
    group = see.name("g")
    await see.wait("coordinator", admin.find_coordinator(group))
    reader = await consumer(see, filled_topic, group_id=group)
    await polled(reader, 8)
    await reader.commit()
    await see.wait("describe group", admin.describe_consumer_groups([group]))
    await see.wait("describe none", admin.describe_consumer_groups([see.name("none")]))
    await see.wait(
        "describe operations", admin.describe_consumer_groups([group], include_authorized_operations=True)
    )
    listed = await admin.list_consumer_groups()
    see.note("groups", [each for each in listed if group in each])
    await see.wait("offsets", admin.list_consumer_group_offsets(group))
    await see.wait(
        "offsets of one",
        admin.list_consumer_group_offsets(group, partitions=[place, TopicPartition(name, 1)]),
    )
    await see.wait("offsets of none", admin.list_consumer_group_offsets(see.name("none")))
    await reader.stop()
    await see.wait("delete", admin.delete_topics([name]))
    await see.wait("delete again", admin.delete_topics([name]))
    await see.wait("close", admin.close())


async def wrong_addresses(see: Trace) -> None:
    for label, options in (
        ("tls", {"security_protocol": "SSL"}),
        (
            "sasl",
            {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "PLAIN",
                "sasl_plain_username": "a",
                "sasl_plain_password": "b",
            },
        ),
        (
            "scram",
            {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "SCRAM-SHA-256",
                "sasl_plain_username": "a",
                "sasl_plain_password": "b",
            },
        ),
    ):
        if label == "tls":
            options = {**options, "ssl_context": ssl.create_default_context()}
        writer = AIOKafkaProducer(bootstrap_servers=see.bootstrap, request_timeout_ms=4000, **options)
        await see.wait(label, writer.start(), 15)
        with suppress(Exception):
            await writer.stop()
