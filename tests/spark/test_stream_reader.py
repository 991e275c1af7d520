"""A query's source from trigger to trigger, driven as Spark drives it but without the wait for Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from barnabas.spark.open_ranges import DataLossError
from barnabas.spark.options import ReadOptions
from barnabas.spark.ranges import OffsetsJson
from barnabas.spark.stream_reader import TopicStreamReader

MakeTopic = Callable[..., str]
Feed = Callable[..., None]
Open = Callable[..., TopicStreamReader]


@pytest.fixture
def open_reader(servers: str) -> Iterator[Open]:
    readers = []

    def open_reader(**options: str) -> TopicStreamReader:
        options |= {"kafka.bootstrap.servers": servers}
        readers.append(TopicStreamReader(ReadOptions.parse(options, streaming=True)))
        return readers[-1]

    yield open_reader
    for reader in readers:
        reader.stop()


def batch(reader: TopicStreamReader, start: OffsetsJson, end: OffsetsJson) -> list[bytes]:
    tasks = reader.partitions(start, end)
    tables = [pa.Table.from_batches([each]) for task in tasks for each in reader.read(task)]
    return sorted(value for table in tables for value in table["value"].to_pylist())


def test_a_micro_batch_holds_what_came_since_the_last(
    make_topic: MakeTopic, feed: Feed, open_reader: Open
) -> None:
    topic = make_topic(2)
    feed(topic, "ab")
    reader = open_reader(subscribe=topic)
    start = reader.initialOffset()
    assert start == {topic: {"0": 2, "1": 0}}
    feed(topic, "cd", partition=1)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert batch(reader, start, end) == [b"c", b"d"]
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert reader.partitions(end, end) == []
    assert reader.reportLatestOffset() == end


def test_a_replayed_batch_reads_the_same_again(make_topic: MakeTopic, feed: Feed, open_reader: Open) -> None:
    topic = make_topic()
    feed(topic, "abc")
    start, end = {topic: {"0": 0}}, {topic: {"0": 2}}
    assert batch(open_reader(subscribe=topic), start, end) == [b"a", b"b"]
    feed(topic, "de")
    assert batch(open_reader(subscribe=topic), start, end) == [b"a", b"b"]


def test_a_limit_holds_for_each_trigger_until_all_is_read(
    make_topic: MakeTopic, feed: Feed, open_reader: Open
) -> None:
    topic = make_topic(2)
    feed(topic, range(30))
    feed(topic, range(10), partition=1)
    reader = open_reader(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="20")
    assert reader.getDefaultReadLimit() == ReadMaxRows(20)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end == {topic: {"0": 15, "1": 5}}
    assert reader.latestOffset(end, ReadMaxRows(20)) == {topic: {"0": 30, "1": 10}}
    assert reader.latestOffset(start, ReadAllAvailable()) == {topic: {"0": 30, "1": 10}}


def test_available_now_leaves_later_records_to_the_next_run(
    make_topic: MakeTopic, feed: Feed, open_reader: Open
) -> None:
    topic = make_topic()
    feed(topic, "ab")
    reader = open_reader(subscribe=topic, startingOffsets="earliest")
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    feed(topic, "cd")
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == {topic: {"0": 2}}
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_a_new_partition_is_read_from_its_start(
    make_topic: MakeTopic, feed: Feed, open_reader: Open, admin: AdminClient
) -> None:
    topic = make_topic()
    reader = open_reader(subscribe=topic)
    start = reader.initialOffset()
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    while len(admin.list_topics(topic, timeout=30).topics[topic].partitions) < 2:
        pass  # Apache Kafka answers before all know of it
    feed(topic, "ab", partition=1)
    limited = reader.latestOffset(start, ReadMaxRows(1))
    assert limited == {topic: {"0": 0, "1": 1}}
    end = reader.latestOffset(start, ReadAllAvailable())
    assert batch(reader, start, end) == [b"a", b"b"]


def test_a_new_topic_that_matches_the_pattern_joins_the_stream(
    make_topic: MakeTopic, feed: Feed, open_reader: Open
) -> None:
    mark = uuid.uuid4().hex[:8]
    make_topic(name=f"{mark}-old")
    reader = open_reader(subscribePattern=f"{mark}-.*")
    start = reader.initialOffset()
    feed(make_topic(name=f"{mark}-new"), "ab")
    end = reader.latestOffset(start, ReadAllAvailable())
    assert batch(reader, start, end) == [b"a", b"b"]


def test_a_topic_made_anew_is_data_loss_and_then_read_from_its_start(
    make_topic: MakeTopic, feed: Feed, open_reader: Open, admin: AdminClient
) -> None:
    topic = make_topic()
    feed(topic, "abcd")
    start = {topic: {"0": 4}}
    admin.delete_topics([topic])[topic].result(30)
    make_topic(name=topic)
    feed(topic, "xy")
    strict, lenient = open_reader(subscribe=topic), open_reader(subscribe=topic, failOnDataLoss="false")
    end = lenient.latestOffset(start, ReadMaxRows(10))
    assert end == {topic: {"0": 2}}
    with pytest.raises(DataLossError, match=f"{topic}-0 has no offset 4 any more; its log goes from 0 to 2"):
        strict.partitions(start, end)
    assert batch(lenient, start, end) == [b"x", b"y"]


def test_a_topic_deleted_under_a_stream_is_data_loss_and_the_others_go_on(
    make_topic: MakeTopic, feed: Feed, open_reader: Open, admin: AdminClient
) -> None:
    deleted, kept = make_topic(), make_topic()
    both = {"subscribe": f"{deleted},{kept}"}
    strict, lenient = open_reader(**both), open_reader(**both, failOnDataLoss="false")
    start = strict.initialOffset()
    admin.delete_topics([deleted])[deleted].result(30)
    feed(kept, "ab")
    end = lenient.latestOffset(start, ReadAllAvailable())
    assert end == {kept: {"0": 2}}
    with pytest.raises(DataLossError, match=f"{deleted}-0: the partition is gone"):
        strict.partitions(start, end)
    assert batch(lenient, start, end) == [b"a", b"b"]


def test_a_partition_that_is_gone_is_data_loss(make_topic: MakeTopic, feed: Feed, open_reader: Open) -> None:
    topic = make_topic()
    feed(topic, "ab")
    start, end = {topic: {"0": 0, "1": 5}}, {topic: {"0": 2}}
    with pytest.raises(DataLossError, match=f"{topic}-1: the partition is gone"):
        open_reader(subscribe=topic).partitions(start, end)
    assert batch(open_reader(subscribe=topic, failOnDataLoss="false"), start, end) == [b"a", b"b"]
