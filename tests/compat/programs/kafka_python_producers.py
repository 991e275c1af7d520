"""Producers and consumers of kafka-python, one program a function."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from kafka import (
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    TopicPartition,
)
from kafka.admin import KafkaAdminClient, NewTopic
from tests.compat.programs import confluent_clients
from tests.compat.programs.confluent_clients import is_known, until
from tests.compat.programs.trace import Trace


def made(see: Trace, suffix: str, partitions: int = 1, **config: str) -> str:
    """Create a topic, and wait until a producer can use it."""
    name = see.name(suffix)
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin = KafkaAdminClient(bootstrap_servers=see.bootstrap)
    admin.create_topics([NewTopic(name, partitions, 1, topic_configs=settings)])
    admin.wait_for_topics([name])
    admin.close()
    return name


def producer(see: Trace, **options: Any) -> KafkaProducer:
    return KafkaProducer(bootstrap_servers=see.bootstrap, **{"client_id": "programs", **options})


def consumer(see: Trace, *topics: str, **options: Any) -> KafkaConsumer:
    usual = {"client_id": "programs", "auto_offset_reset": "earliest", "consumer_timeout_ms": 3000}
    return KafkaConsumer(*topics, bootstrap_servers=see.bootstrap, **{**usual, **options})


def sent(see: Trace, label: str, writer: KafkaProducer, *args: Any, **options: Any) -> None:
    see.call(label, lambda: writer.send(*args, **options).get(20))


def everything_read(see: Trace, topic: str, partitions: int = 1, **options: Any) -> None:
    with consumer(see, consumer_timeout_ms=1500, **options) as reader:
        reader.assign([TopicPartition(topic, each) for each in range(partitions)])
        see.note("read", list(reader))


def acknowledgements(see: Trace) -> None:
    topic = made(see, "t")
    for acks in (0, 1, "all"):
        with producer(see, acks=acks, enable_idempotence=False) as writer:
            sent(see, f"acks={acks}", writer, topic, b"v")
            sent(see, f"acks={acks} to no partition", writer, topic, b"v", partition=7)
            see.call(f"acks={acks} flush", writer.flush)
    everything_read(see, topic)


def compressions(see: Trace) -> None:
    topic = made(see, "t")
    for kind in (None, "gzip", "snappy", "lz4", "zstd"):
        with producer(see, compression_type=kind, linger_ms=20) as writer:
            pending = [writer.send(topic, b"%d" % each * 50, key=b"k") for each in range(5)]
            for each in pending:
                see.call(f"{kind}", each.get, 20)
    everything_read(see, topic)


def records_of_all_kinds(see: Trace) -> None:
    topic = made(see, "t", 3)
    with producer(see) as writer:
        sent(see, "no value", writer, topic, None, key=b"k")
        sent(see, "no key", writer, topic, b"v", partition=0)
        sent(see, "empty", writer, topic, b"", key=b"", partition=0)
        sent(
            see, "headers", writer, topic, b"v", headers=[("a", b"1"), ("a", b""), ("é", b"\0")], partition=1
        )
        sent(see, "timestamp", writer, topic, b"v", timestamp_ms=1234567, partition=1)
        sent(see, "timestamp 0", writer, topic, b"v", timestamp_ms=0, partition=1)
        sent(see, "timestamp in a far future", writer, topic, b"v", timestamp_ms=99999999999999, partition=1)
        sent(see, "timestamp -5", writer, topic, b"v", timestamp_ms=-5, partition=1)
        sent(see, "negative partition", writer, topic, b"v", partition=-3)
        see.call("partitions", writer.partitions_for, topic)
    everything_read(see, topic, 3)


def log_append_time(see: Trace) -> None:
    topic = made(see, "t", message_timestamp_type="LogAppendTime")
    with producer(see) as writer:
        sent(see, "own timestamp", writer, topic, b"v", timestamp_ms=1234567)
    everything_read(see, topic)


def timestamps_with_limits(see: Trace) -> None:
    topic = made(see, "t", message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000")
    for idempotent in (True, False):
        with producer(see, enable_idempotence=idempotent, retries=2) as writer:
            sent(see, f"early {idempotent}", writer, topic, b"v", timestamp_ms=1234567)
            sent(see, f"late {idempotent}", writer, topic, b"v", timestamp_ms=99999999999999)
            sent(see, f"now {idempotent}", writer, topic, b"v")


def no_key_on_a_compacted_topic(see: Trace) -> None:
    topic = made(see, "t", cleanup_policy="compact")
    for idempotent in (True, False):
        with producer(see, enable_idempotence=idempotent, linger_ms=100) as writer:
            pending = [writer.send(topic, b"v", key=key) for key in (b"a", None, b"b")]
            for number, each in enumerate(pending):
                see.call(f"{idempotent} {number}", each.get, 20)
            sent(see, f"{idempotent} after", writer, topic, b"v", key=b"c")
    everything_read(see, topic)


def too_large(see: Trace) -> None:
    topic = made(see, "t", max_message_bytes="2000")
    for idempotent in (True, False):
        with producer(see, enable_idempotence=idempotent) as writer:
            sent(see, f"record {idempotent}", writer, topic, b"v" * 5000)
            sent(see, f"small {idempotent}", writer, topic, b"v")
    with producer(see, linger_ms=200) as writer:
        pending = [writer.send(topic, b"%d" % each * 700) for each in range(6)]
        for number, each in enumerate(pending):
            see.call(f"batch {number}", each.get, 20)
    with producer(see, max_request_size=20_000_000, batch_size=1) as writer:
        sent(see, "above the client's own", writer, topic, b"v" * 30_000_000)
        sent(see, "above the broker's", writer, made(see, "u"), b"v" * 2_000_000)
    everything_read(see, topic)


def unknown_topics(see: Trace) -> None:
    with producer(see, max_block_ms=5000) as writer:
        sent(see, "created", writer, see.name("auto"), b"v")
        see.call("partitions", writer.partitions_for, see.name("auto2"))
        for name in ("a b", "", ".", "x" * 250, "é"):
            sent(see, f"name {name}", writer, name, b"v")
        see.call("partitions of an invalid name", writer.partitions_for, "a b")
        sent(see, "internal", writer, "__consumer_offsets", b"v", partition=0)
    # The producer of kafka-python 3.0 does not send this option. Kafka first creates 50 partitions of
    # __consumer_offsets, which can take seconds.
    with producer(see, max_block_ms=30_000, allow_auto_create_topics=False) as writer:
        sent(see, "created in spite of the option", writer, see.name("spite"), b"v")


def closed_producer(see: Trace) -> None:
    topic = made(see, "t")
    writer = producer(see, linger_ms=5000)
    pending = writer.send(topic, b"v")
    see.call("close", writer.close)
    see.call("sent before", pending.get, 5)
    see.call("send", writer.send, topic, b"v")
    see.call("flush", writer.flush)
    see.call("close again", writer.close)
    everything_read(see, topic)


def deleted_topic(see: Trace) -> None:
    topic = made(see, "t")
    admin = KafkaAdminClient(bootstrap_servers=see.bootstrap)
    with producer(see, enable_idempotence=False, retries=0, max_block_ms=4000) as writer:
        sent(see, "first", writer, topic, b"v")
        see.call("delete", admin.delete_topics, [topic])
        until(lambda: not is_known(confluent_clients.admin(see), topic))
        see.call("produce", lambda: type(writer.send(topic, b"v").exception))
    admin.close()


def transactions(see: Trace) -> None:
    topic = made(see, "t")
    writer = producer(see, transactional_id=see.name("x"), transaction_timeout_ms=10000)
    see.call("begin early", writer.begin_transaction)
    see.call("init", writer.init_transactions)
    see.call("init again", writer.init_transactions)
    see.call("send outside", writer.send, topic, b"v")
    see.call("begin", writer.begin_transaction)
    see.call("begin twice", writer.begin_transaction)
    sent(see, "send", writer, topic, b"committed")
    see.call("commit", writer.commit_transaction)
    see.call("commit twice", writer.commit_transaction)
    see.call("begin 2", writer.begin_transaction)
    sent(see, "send 2", writer, topic, b"aborted")
    see.call("abort", writer.abort_transaction)
    see.call("begin empty", writer.begin_transaction)
    see.call("commit empty", writer.commit_transaction)
    see.call("begin 3", writer.begin_transaction)
    sent(see, "invalid topic in a transaction", writer, "a b", b"v")
    see.call("commit 3", writer.commit_transaction)
    with suppress(Exception):
        writer.abort_transaction()
    see.call("begin 4", writer.begin_transaction)
    sent(see, "send 4", writer, topic, b"open")
    other = producer(see, transactional_id=see.name("x"), transaction_timeout_ms=10000)
    see.call("init of another", other.init_transactions)
    see.call("fenced send", lambda: writer.send(topic, b"fenced").get(10))
    see.call("fenced commit", writer.commit_transaction)
    see.call("fenced abort", writer.abort_transaction)
    see.call("begin of another", other.begin_transaction)
    sent(see, "send of another", other, topic, b"last")
    see.call("commit of another", other.commit_transaction)
    see.call("close fenced", writer.close)
    see.call("close", other.close)
    everything_read(see, topic, isolation_level="read_committed")
    everything_read(see, topic)


def transaction_timeouts(see: Trace) -> None:
    topic = made(see, "t")
    writer = producer(see, transactional_id=see.name("long"), transaction_timeout_ms=99_000_000)
    see.call("timeout above the broker's", writer.init_transactions)
    writer.close(1)
    writer = producer(see, transactional_id=see.name("short"), transaction_timeout_ms=1000)
    see.call("init", writer.init_transactions)
    see.call("begin", writer.begin_transaction)
    sent(see, "send", writer, topic, b"v")
    until(lambda: _is_aborted(see, topic), 60)  # Kafka looks every 10 s for such transactions
    see.call("commit late", writer.commit_transaction)
    see.call("abort late", writer.abort_transaction)
    see.call("begin after", writer.begin_transaction)
    see.call("send after", lambda: writer.send(topic, b"w").get(10))
    see.call("commit after", writer.commit_transaction)
    see.call("close", writer.close, 5)
    everything_read(see, topic, isolation_level="read_committed")


def _is_aborted(see: Trace, topic: str) -> bool:
    """Return whether the marker of a transaction with one record is there."""
    place = TopicPartition(topic, 0)
    with consumer(see, isolation_level="read_committed") as reader:
        return int(reader.end_offsets([place])[place]) == 2


def offsets_in_a_transaction(see: Trace) -> None:
    topic = made(see, "t")
    place, group = TopicPartition(topic, 0), see.name("g")
    writer = producer(see, transactional_id=see.name("x"))
    writer.init_transactions()
    reader = consumer(see, topic, group_id=group, enable_auto_commit=False, consumer_timeout_ms=30_000)
    sent_first = producer(see)
    sent_first.send(topic, b"v").get(10)
    sent_first.close()
    see.call("read", lambda: len(next(reader)))
    for end in ("abort", "commit"):
        see.call(f"{end} begin", writer.begin_transaction)
        see.call(
            f"{end} offsets",
            writer.send_offsets_to_transaction,
            {place: OffsetAndMetadata(1, "meta", -1)},
            reader.group_metadata(),
        )
        see.call(f"{end} committed meanwhile", reader.committed, place, timeout_ms=3000)
        see.call(end, getattr(writer, f"{end}_transaction"))
        see.call_until(
            f"{end} committed",
            lambda found, end=end: (found is not None) == (end == "commit"),
            reader.committed,
            place,
            metadata=True,
            timeout_ms=5000,
        )
    see.call("begin", writer.begin_transaction)
    stranger = reader.group_metadata()
    reader.close()
    see.call(
        "offsets of a member that has left",
        writer.send_offsets_to_transaction,
        {place: OffsetAndMetadata(5, "", -1)},
        stranger,
    )
    see.call("commit", writer.commit_transaction)
    see.call("abort", writer.abort_transaction)
    writer.close()
