"""Producers of confluent-kafka, one program a function."""

from __future__ import annotations

from confluent_kafka import OFFSET_END, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from tests.compat.programs.confluent_clients import (
    admin,
    everything_read,
    made,
    producer,
    removed,
    reports,
    sent,
    until,
)
from tests.compat.programs.trace import Trace

#: the two kinds of producers that every unhappy program tries
_KINDS: tuple[dict[str, object], ...] = ({"acks": "all"}, {"enable_idempotence": True})
#: names that no topic can have
INVALID_NAMES = ("a b", ".", "..", "x" * 250, "é")


def deliveries_of_every_kind(see: Trace) -> None:
    topic = made(see, "t", 3)
    for options in (
        {"acks": 1},
        {"acks": "all"},
        {"enable_idempotence": True},
        {"compression_type": "gzip"},
        {"compression_type": "snappy"},
        {"compression_type": "lz4"},
        {"compression_type": "zstd"},
        {"linger_ms": 100, "enable_idempotence": True, "compression_type": "zstd"},
        {"acks": 0},  # the last one: it is not known when the broker has its records
    ):
        writer = producer(see, **options)
        headers = [("h", b"1"), ("h", None), ("é", "é")]
        sent(see, f"{options}", writer, topic, b"v" * 100, b"w" * 100, key=b"k", headers=headers)
        sent(see, f"{options} null", writer, topic, None, key=b"k")
        sent(see, f"{options} time", writer, topic, b"v", timestamp=1234567, partition=1)
        sent(see, f"{options} empty", writer, topic, b"", key=b"", partition=2)
        see.call(f"{options} left", writer.flush, 10)
    everything_read(see, topic, 3)


def a_batch_of_many_records(see: Trace) -> None:
    topic = made(see, "t")
    writer = producer(see, enable_idempotence=True, linger_ms=50)
    records = [{"key": b"%d" % number, "value": b"v" * number} for number in range(500)]
    see.call("batch", writer.produce_batch, topic, records, partition=0)
    see.call("flush", writer.flush, 30)
    see.call("batch to no partition", writer.produce_batch, topic, records[:2], partition=9)
    see.call("flush", writer.flush, 30)
    everything_read(see, topic)


def topics_that_a_producer_creates(see: Trace) -> None:
    writer = producer(see, message_timeout_ms=10_000)
    sent(see, "created", writer, see.name("auto"), b"v", b"w")
    see.call("list a new topic", lambda: sorted(writer.list_topics(see.name("auto2"), 10).topics))
    sent(see, "after the list", writer, see.name("auto2"), b"v")
    everything_read(see, see.name("auto"))


def topics_with_invalid_names(see: Trace) -> None:
    for options in _KINDS:
        writer = producer(see, message_timeout_ms=3000, **options)
        for name in (*INVALID_NAMES, ""):
            see.call(f"{options} {name} is rejected", _is_rejected, writer, name)
    writer = producer(see, message_timeout_ms=5000)
    for name in INVALID_NAMES:
        see.call(f"list {name}", lambda name=name: writer.list_topics(name, 5).topics[name].error)
    sent(see, "internal", writer, "__consumer_offsets", b"v", partition=0)


def _is_rejected(writer: Producer, topic: str) -> bool:
    """Return whether the client rejects a record, at once or in its report: it can know the topic's error."""
    try:
        ((error, _, _),) = reports(writer, topic, b"v")
    except KafkaException:
        return True
    return error is not None


def partitions_that_do_not_exist(see: Trace) -> None:
    topic = made(see, "t", 2)
    for options in _KINDS:
        writer = producer(see, **options)
        sent(see, f"{options} wrong", writer, topic, b"v", partition=7)
        sent(see, f"{options} right", writer, topic, b"v", partition=1)
    clients = admin(see)
    see.call("grow", lambda: clients.create_partitions([NewPartitions(topic, 4)]))
    see.note(
        "the new partition is there",
        until(lambda: len(clients.list_topics(topic, 10).topics[topic].partitions) == 4),
    )
    writer = producer(see)
    sent(see, "new", writer, topic, b"new", partition=3)
    everything_read(see, topic, 4)


def records_that_are_too_large(see: Trace) -> None:
    topic, usual = made(see, "t", max_message_bytes="2000"), made(see, "u")
    for options in _KINDS:
        writer = producer(see, message_max_bytes=10_000_000, linger_ms=100, **options)
        sent(see, f"{options} record", writer, topic, b"v" * 5000)
        sent(see, f"{options} small", writer, topic, b"v")
        sent(see, f"{options} batch", writer, topic, *(b"%d" % each * 700 for each in range(6)))
        sent(see, f"{options} after", writer, topic, b"v")
        see.call(f"{options} above the client's own", writer.produce, topic, b"v" * 11_000_000)
        sent(see, f"{options} above the broker's", writer, usual, b"v" * 2_000_000)
    everything_read(see, topic)


def records_that_the_broker_rejects(see: Trace) -> None:
    compact = made(see, "c", cleanup_policy="compact")
    timed = made(see, "d", message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000")
    few = made(see, "e", min_insync_replicas="2")
    for options in _KINDS:
        writer = producer(see, linger_ms=100, message_timeout_ms=4000, **options)
        sent(see, f"{options} no key", writer, compact, b"v", b"w")
        sent(see, f"{options} key", writer, compact, b"v", key=b"k")
        sent(see, f"{options} early", writer, timed, b"v", timestamp=1234567)
        sent(see, f"{options} late", writer, timed, b"v", timestamp=99_999_999_999_999)
        sent(see, f"{options} now", writer, timed, b"v")
        sent(see, f"{options} few replicas", writer, few, b"v")
    writer = producer(see, acks="all", retries=0)
    sent(see, "few replicas, no retries", writer, few, b"v")
    writer = producer(see, acks=1)
    sent(see, "few replicas, acks=1", writer, few, b"v")
    everything_read(see, compact)


def timestamps_of_the_log(see: Trace) -> None:
    topic = made(see, "t", message_timestamp_type="LogAppendTime")
    for options in _KINDS:
        writer = producer(see, **options)
        sent(see, f"{options}", writer, topic, b"v", timestamp=1234567)
    everything_read(see, topic)


def topics_that_go_under_a_producer(see: Trace) -> None:
    for number, options in enumerate(_KINDS):
        topic = made(see, f"t{number}", 2)
        writer = producer(see, message_timeout_ms=20_000, **options)
        sent(see, f"{options} before", writer, topic, b"v", b"w", partition=0)
        sent(see, f"{options} before, last partition", writer, topic, b"v", partition=1)
        removed(see, topic)
        made(see, f"t{number}", 2)
        see.note(f"{options} works again", until(lambda: _is_delivered(writer, topic)))  # noqa: B023
        everything_read(see, topic, 1)


def _is_delivered(writer: Producer, topic: str) -> bool:
    try:
        ((error, _, _),) = reports(writer, topic, b"again", partition=0)
    except KafkaException:  # the client knows that the topic is gone
        return False
    return error is None


def topics_that_shrink_under_a_producer(see: Trace) -> None:
    for number, options in enumerate(_KINDS):
        topic = made(see, f"t{number}", 3)
        writer = producer(see, message_timeout_ms=20_000, **options)
        sent(see, f"{options} before", writer, topic, b"v", partition=2)
        removed(see, topic)
        made(see, f"t{number}", 1)
        see.note(f"{options} the first partition", until(lambda: _is_delivered(writer, topic)))  # noqa: B023
        sent(see, f"{options} the last partition", writer, topic, b"v", partition=2)
        everything_read(see, topic)


def settings_that_change_under_a_producer(see: Trace) -> None:
    clients = admin(see)
    for number, options in enumerate(_KINDS):
        topic = made(see, f"t{number}")
        writer = producer(see, **options)
        for name, value in (
            ("max.message.bytes", "500"),
            ("message.timestamp.type", "LogAppendTime"),
            ("compression.type", "gzip"),
            ("cleanup.policy", "compact"),
        ):
            entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
            clients.incremental_alter_configs([resource])[resource].result(20)
            until(lambda: _setting(clients, topic, name) == value)  # noqa: B023
            sent(see, f"{options} {name}", writer, topic, b"v", b"v" * 600, timestamp=5000)
            sent(see, f"{options} {name} with a key", writer, topic, b"w", key=b"k", timestamp=5000)
        everything_read(see, topic)


def _setting(clients: AdminClient, topic: str, name: str) -> str | None:
    (found,) = clients.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return found.result(20)[name].value


def records_that_go_under_a_producer(see: Trace) -> None:
    topic, clients = made(see, "t"), admin(see)
    place = TopicPartition(topic, 0, OFFSET_END)
    for options in _KINDS:
        writer = producer(see, **options)
        for number in range(3):
            sent(see, f"{options} {number}", writer, topic, b"v", b"w")
            see.call(f"{options} delete {number}", lambda: clients.delete_records([place]))
        sent(see, f"{options} after", writer, topic, b"v")
    everything_read(see, topic)


def purged_records(see: Trace) -> None:
    topic = made(see, "t")
    writer = producer(see, linger_ms=60_000)
    writer.produce(topic, b"v")
    see.call("records that wait", len, writer)
    see.call("purge", writer.purge)
    see.call("flush", writer.flush, 5)
    writer = producer(see, queue_buffering_max_messages=2, linger_ms=60_000)
    for number in range(4):
        see.call(f"full queue {number}", writer.produce, topic, b"%d" % number)
    writer.purge()
    everything_read(see, topic)


def settings_that_a_producer_rejects(see: Trace) -> None:
    for options in (
        {"acks": 5},
        {"acks": 1, "enable_idempotence": True},
        {"compression_type": "none such"},
        {"no_such_setting": 1},
        {"transactional_id": "x", "enable_idempotence": False},
        {"max_in_flight": 10, "enable_idempotence": True},
        {"message_max_bytes": 1},
    ):
        see.call(f"{options}", lambda options=options: type(producer(see, **options)).__name__)
    topic = made(see, "t")
    sent(see, "acks=2", producer(see, acks=2), topic, b"v")
