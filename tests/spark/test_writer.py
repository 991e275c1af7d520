"""Rows as records: their topic and partition, their fields, and the errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Message
from confluent_kafka import TopicPartition as ClientPartition

from barnabas.spark.options import WriteOptions
from barnabas.spark.record_sink import DeliveryError
from barnabas.spark.writer import write_batches

MakeTopic = Callable[..., str]
Write = Callable[..., int]

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture
def write(servers: str) -> Write:
    def write(option: str | None, settings: dict[str, str] | None = None, /, **columns: Any) -> int:
        client = {"bootstrap.servers": servers, "log_level": "0", **(settings or {})}
        batch = pa.RecordBatch.from_pydict(columns)
        return write_batches(WriteOptions(client, option), iter([batch.slice(0, 1), batch.slice(1)]))

    return write


@pytest.fixture
def records(servers: str) -> Callable[[str, int], list[Message]]:
    def records(topic: str, count: int) -> list[Message]:
        consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": "reader", "auto.offset.reset": "earliest"}
        )
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        consumer.assign([ClientPartition(topic, partition, 0) for partition in partitions])
        found = consumer.consume(count, timeout=60)
        consumer.close()
        assert all(message.error() is None for message in found)
        return sorted(found, key=lambda message: (message.partition(), message.offset()))

    return records


Records = Callable[[str, int], list[Message]]


def test_every_row_becomes_a_record_in_order(make_topic: MakeTopic, write: Write, records: Records) -> None:
    topic = make_topic()
    assert write(topic, value=[f"v{n}" for n in range(500)]) == 500
    assert [record.value() for record in records(topic, 500)] == [b"v%d" % n for n in range(500)]


def test_nulls_and_headers_come_through(make_topic: MakeTopic, write: Write, records: Records) -> None:
    topic = make_topic()
    headers = pa.array([[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None], HEADERS)
    write(topic, key=[b"k", None], value=[None, b"v"], headers=headers)
    first, second = records(topic, 2)
    assert (first.key(), first.value(), first.headers()) == (b"k", None, [("h", b"1"), ("h", None)])
    assert (second.key(), second.value(), second.headers()) == (None, b"v", None)


def test_keys_go_to_the_partitions_that_java_clients_choose(
    make_topic: MakeTopic, write: Write, records: Records
) -> None:
    topic = make_topic(4)
    keys = ["foobar", "21", "a-little-bit-long-string"]
    write(topic, key=keys, value=keys)
    # murmur2 of these keys is -790332482, -973932308 and -985981536 (Apache Kafka's UtilsTest)
    expected = {"foobar": -790332482, "21": -973932308, "a-little-bit-long-string": -985981536}
    chosen = {record.key().decode(): record.partition() for record in records(topic, 3)}
    assert chosen == {key: (hashed & 0x7FFFFFFF) % 4 for key, hashed in expected.items()}


def test_a_row_may_choose_its_topic_and_its_partition(
    make_topic: MakeTopic, write: Write, records: Records
) -> None:
    one, two = make_topic(3), make_topic(3)
    write(None, value=["a", "b"], topic=[one, two], partition=pa.array([2, None], pa.int32()))
    assert [(record.partition(), record.value()) for record in records(one, 1)] == [(2, b"a")]
    assert [record.value() for record in records(two, 1)] == [b"b"]


def test_the_option_topic_goes_before_the_column(
    make_topic: MakeTopic, write: Write, records: Records
) -> None:
    topic = make_topic()
    write(topic, value=["a"], topic=["elsewhere"])
    assert [record.value() for record in records(topic, 1)] == [b"a"]


def test_a_row_without_a_topic_fails_the_task(write: Write) -> None:
    with pytest.raises(DeliveryError, match="column topic is NULL in a row: name a topic in each"):
        write(None, value=["a"], topic=pa.array([None], pa.string()))


def test_a_partition_that_is_not_there_fails_the_task(make_topic: MakeTopic, write: Write) -> None:
    topic = make_topic(2)
    with pytest.raises(
        DeliveryError, match=f"cannot write to {topic}-7 the row with no .*[Uu]nknown partition"
    ):
        write(topic, value=["a"], partition=pa.array([7], pa.int32()))


@pytest.mark.parametrize(
    ("column", "cause"),
    [
        ({"partition": pa.array([-5], pa.int32())}, "{topic}--5 the row .*: .*Unknown partition"),
        ({"headers": pa.array([[None]], HEADERS)}, "{topic} the row .*: a header is NULL or has no key"),
        (
            {"headers": pa.array([[{"key": None, "value": b"v"}]], HEADERS)},
            "{topic} the row with key b'k' and a value of 1 bytes: a header is NULL or has no key",
        ),
    ],
)
def test_a_row_that_can_be_no_record_is_refused_with_its_cause(
    make_topic: MakeTopic, write: Write, column: dict[str, pa.Array], cause: str
) -> None:
    topic = make_topic()
    with pytest.raises(DeliveryError, match="cannot write to " + cause.format(topic=topic)):
        write(topic, key=["k"], value=["v"], **column)


def test_a_topic_that_is_not_there_is_named(write: Write) -> None:
    with pytest.raises(DeliveryError, match=r"cannot write to no such/topic the row with no key .* topic"):
        write("no such/topic", value=["v"])


@pytest.mark.parametrize("name", ["t" * 600, "t\0u"])
def test_a_topic_that_no_broker_can_have_is_refused_with_the_row(write: Write, name: str) -> None:
    with pytest.raises(
        DeliveryError, match=f"cannot write to {name} the row with key b'k' .*nvalid argument"
    ):
        write(None, key=["k"], value=["v"], topic=[name])


def test_a_record_the_broker_refuses_fails_the_task_and_not_the_next(
    make_topic: MakeTopic, write: Write, records: Records
) -> None:
    topic = make_topic(max_message_bytes="2000")
    cause = f"cannot write to {topic}-0 the row with key b'k' and a value of 3000 bytes: Broker: Message size"
    with pytest.raises(DeliveryError, match=cause):
        write(topic, key=["k"], value=["x" * 3000])
    write(topic, value=["small"])
    assert [record.value() for record in records(topic, 1)] == [b"small"]


def test_records_that_no_broker_takes_fail_the_task_when_their_time_is_up(write: Write) -> None:
    settings = {"bootstrap.servers": "127.0.0.1:1", "delivery.timeout.ms": "500", "linger.ms": "0"}
    for room in ("10", "1000"):
        with pytest.raises(DeliveryError, match=r"cannot write to t the row with no key and .*[Tt]imed out"):
            write("t", {**settings, "queue.buffering.max.messages": room}, value=["a"] * 100)


def test_columns_of_any_width_with_and_without_values_come_through(
    make_topic: MakeTopic, write: Write, records: Records
) -> None:
    topic = make_topic()
    for keys, values in ((pa.large_string(), pa.large_binary()), (pa.binary(), pa.string())):
        write(topic, key=pa.array(["", None, "k"], keys), value=pa.array([None, "", "v"], values))
    found = [(record.key(), record.value()) for record in records(topic, 6)]
    assert found == [(b"", None), (None, b""), (b"k", b"v")] * 2


def test_a_full_queue_is_waited_for(make_topic: MakeTopic, write: Write, records: Records) -> None:
    topic = make_topic()
    settings = {"queue.buffering.max.messages": "10", "linger.ms": "0"}
    assert write(topic, settings, value=[str(n) for n in range(300)]) == 300
    assert [record.value() for record in records(topic, 300)] == [b"%d" % n for n in range(300)]
