"""A task reads exactly its ranges, and reports missing records."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from barnabas.spark.arrow import arrow_schema
from barnabas.spark.clients import Settings, consumer_settings
from barnabas.spark.columns import column_names
from barnabas.spark.fetch import ReadTimeoutError, read_ranges
from barnabas.spark.open_ranges import DataLossError
from barnabas.spark.ranges import OffsetRange

Read = Callable[..., list[dict[str, object]]]


@pytest.fixture
def settings(servers: str) -> Settings:
    return consumer_settings({"bootstrap.servers": servers})


@pytest.fixture
def read(settings: Settings) -> Read:
    def read(*ranges: OffsetRange, headers: bool = False, fail: bool = True) -> list[dict[str, object]]:
        schema = arrow_schema(column_names(headers))
        batches = list(read_ranges(list(ranges), settings, schema, fail_on_data_loss=fail, poll_timeout_s=30))
        assert all(batch.schema == schema for batch in batches)
        return pa.Table.from_batches(batches, schema).to_pylist()

    return read


def values(rows: list[dict[str, object]]) -> list[object]:
    return [row["value"] for row in rows]


def test_a_task_reads_its_range_and_nothing_beyond(
    make_topic: Callable[..., str], feed: Callable[..., None], read: Read
) -> None:
    topic = make_topic()
    feed(topic, range(100))
    assert values(read(OffsetRange(topic, 0, 10, 20))) == [str(n).encode() for n in range(10, 20)]
    assert values(read(OffsetRange(topic, 0, 95, 100))) == [str(n).encode() for n in range(95, 100)]


def test_a_task_reads_several_partitions_each_in_order(
    make_topic: Callable[..., str], feed: Callable[..., None], read: Read
) -> None:
    topic = make_topic(3)
    for partition in range(3):
        feed(topic, range(partition * 100, partition * 100 + 50), partition)
    rows = read(*(OffsetRange(topic, partition, 5, 50 - partition) for partition in range(3)))
    for partition in range(3):
        mine = [row for row in rows if row["partition"] == partition]
        assert [row["offset"] for row in mine] == list(range(5, 50 - partition))
        assert values(mine) == [str(partition * 100 + n).encode() for n in range(5, 50 - partition)]


def test_a_record_keeps_its_key_its_headers_and_its_time(
    make_topic: Callable[..., str], feed: object, read: Read
) -> None:
    topic = make_topic()
    feed.send(topic, key=b"k", value=b"v", headers=[("a", b"1"), ("b", None)], timestamp=1_700_000_000_123)
    feed.send(topic, key=None, value=None)
    first, second = read(OffsetRange(topic, 0, 0, 2), headers=True)
    assert (first["key"], first["value"], first["topic"], first["offset"]) == (b"k", b"v", topic, 0)
    assert first["headers"] == [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    assert first["timestamp"].isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert first["timestampType"] == 0
    assert (second["key"], second["value"], second["headers"]) == (None, None, None)


def test_a_time_set_by_the_broker_is_marked_so(
    make_topic: Callable[..., str], feed: object, read: Read
) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    feed.send(topic, value=b"v")
    assert read(OffsetRange(topic, 0, 0, 1))[0]["timestampType"] == 1


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_are_read_however_they_are_compressed(
    make_topic: Callable[..., str], servers: str, read: Read, compression: str
) -> None:
    topic = make_topic()
    producer = Producer({"bootstrap.servers": servers, "compression.type": compression, "linger.ms": 50})
    sent = [b"%d" % number * 20 for number in range(3_000)]
    for value in sent:
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    assert values(read(OffsetRange(topic, 0, 0, 3_000))) == sent


def test_committed_records_are_all_that_a_reader_of_them_gets(
    make_topic: Callable[..., str], servers: str, settings: Settings, read: Read
) -> None:
    topic = make_topic()
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic})
    producer.init_transactions(60)
    for number, end in enumerate((producer.commit_transaction, producer.abort_transaction) * 3):
        producer.begin_transaction()
        producer.produce(topic, f"{number}")
        producer.flush(60)
        end(30)
    everything = OffsetRange(topic, 0, 0, 12)  # each record and its marker
    assert values(read(everything)) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    settings["isolation.level"] = "read_committed"
    assert values(read(everything)) == [b"0", b"2", b"4"]
    assert values(read(OffsetRange(topic, 0, 3, 12))) == [b"2", b"4"], "from within an aborted transaction"


def test_an_abandoned_task_leaves_nothing_to_the_next(
    make_topic: Callable[..., str], feed: Callable[..., None], settings: Settings, read: Read
) -> None:
    topic, other = make_topic(), make_topic()
    feed(topic, range(30_000))
    feed(other, "ab")
    batches: Iterator[pa.RecordBatch] = read_ranges(
        [OffsetRange(topic, 0, 0, 30_000)],
        settings,
        arrow_schema(column_names(False)),
        fail_on_data_loss=True,
        poll_timeout_s=30,
    )
    next(batches)
    batches.close()
    assert values(read(OffsetRange(other, 0, 0, 2))) == [b"a", b"b"]


def test_deleted_records_fail_the_task(
    make_topic: Callable[..., str], feed: Callable[..., None], admin: AdminClient, read: Read
) -> None:
    topic = make_topic()
    feed(topic, range(10))
    delete_before(admin, topic, 4)
    with pytest.raises(DataLossError, match=f"{topic}-0: offsets 2 to 3 are gone"):
        read(OffsetRange(topic, 0, 2, 10))


def test_deleted_records_are_passed_over_when_data_may_be_lost(
    make_topic: Callable[..., str], feed: Callable[..., None], admin: AdminClient, read: Read
) -> None:
    topic = make_topic()
    feed(topic, range(10))
    delete_before(admin, topic, 4)
    assert values(read(OffsetRange(topic, 0, 2, 6), fail=False)) == [b"4", b"5"]
    assert read(OffsetRange(topic, 0, 0, 3), fail=False) == []


def test_a_log_that_ends_early_is_data_loss(
    make_topic: Callable[..., str], feed: Callable[..., None], read: Read
) -> None:
    topic = make_topic()
    feed(topic, range(5))
    with pytest.raises(DataLossError, match=f"{topic}-0: offsets 5 to 8 are gone"):
        read(OffsetRange(topic, 0, 3, 9))
    assert values(read(OffsetRange(topic, 0, 3, 9), fail=False)) == [b"3", b"4"]


def test_a_topic_that_is_gone_is_data_loss(
    make_topic: Callable[..., str], feed: Callable[..., None], read: Read
) -> None:
    topic = make_topic()
    feed(topic, range(5))
    rows = read(OffsetRange(topic, 0, 0, 5), OffsetRange(topic + "-never", 0, 0, 5), fail=False)
    assert len(rows) == 5
    with pytest.raises(DataLossError, match="-never-0 is gone"):
        read(OffsetRange(topic + "-never", 0, 0, 5))


def test_a_silent_broker_is_named_after_the_poll_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        settings = consumer_settings({"bootstrap.servers": address, "log_level": "0"})
        batches = read_ranges(
            [OffsetRange("a", 0, 0, 1)],
            settings,
            arrow_schema(column_names(False)),
            fail_on_data_loss=True,
            poll_timeout_s=0.3,
        )
        with pytest.raises(
            ReadTimeoutError, match=f"kafkaConsumer.pollTimeoutMs=300: no broker of {address} sent"
        ):
            next(batches)


def delete_before(admin: AdminClient, topic: str, offset: int) -> None:
    partition = ClientPartition(topic, 0, offset)
    admin.delete_records([partition])[partition].result(60)
