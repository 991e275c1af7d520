"""The source for PySpark 4.1, called in its order: it requests the end before it gives the start."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from barnabas.base.errors import ConfigError
from barnabas.spark.open_ranges import DataLossError
from barnabas.spark.options import ReadOptions
from barnabas.spark.position import PositionJson
from barnabas.spark.ranges import Task
from barnabas.spark.stream_reader import TopicStreamReader, UnlimitedStreamReader

MakeTopic = Callable[..., str]
Feed = Callable[..., None]


@dataclass
class Query:
    """A query's checkpoint, and the runs of Spark 4.1 that continue from it.

    `wraps` is its setting spark.sql.streaming.triggerAvailableNowWrapper.enabled, with the trigger.
    """

    options: dict[str, str]
    wraps: bool = False
    ends: list[PositionJson] = field(default_factory=list)
    readers: list[TopicStreamReader] = field(default_factory=list)

    def plan(self, **options: str) -> list[Task]:
        """Return the tasks of the next micro-batch of a new run."""
        reader = self._start(options)
        end = reader.latestOffset() if self.wraps else None
        if self.ends:
            reader.partitions(self.ends[-1], self.ends[-1])
        end = reader.latestOffset() if end is None else end
        start = self.ends[-1] if self.ends else reader.initialOffset()
        self.ends.append(json.loads(json.dumps(end)))
        return tasks(reader, start, self.ends[-1])

    def plan_another(self) -> list[Task]:
        """Return the tasks of the next micro-batch of the same run."""
        reader = self.readers[-1]
        assert isinstance(reader, UnlimitedStreamReader)
        self.ends.append(json.loads(json.dumps(reader.latestOffset())))
        return tasks(reader, *self.ends[-2:])

    def replay(self, **options: str) -> list[Task]:
        """Return the tasks of the last micro-batch, which a new run repeats after a kill."""
        reader = self._start(options)
        if self.wraps:
            reader.latestOffset()
        reader.partitions(self.ends[-1], self.ends[-1])
        return self._last_batch(reader)

    def replay_with_a_newer_spark(self) -> list[Task]:
        """Return the tasks of the last micro-batch, which PySpark 4.2 or later repeats."""
        reader = TopicStreamReader(ReadOptions.parse(self.options, streaming=True))
        self.readers.append(reader)
        reader.prepareForTriggerAvailableNow()
        return self._last_batch(reader)

    def values(self, planned: list[Task]) -> list[bytes]:
        tables = [pa.Table.from_batches([each]) for task in planned for each in self.readers[-1].read(task)]
        return sorted(value for table in tables for value in table["value"].to_pylist())

    def _start(self, options: dict[str, str]) -> UnlimitedStreamReader:
        reader = UnlimitedStreamReader(ReadOptions.parse(self.options | options, streaming=True))
        self.readers.append(reader)
        return reader

    def _last_batch(self, reader: TopicStreamReader) -> list[Task]:
        start = self.ends[-2] if len(self.ends) > 1 else reader.initialOffset()
        return tasks(reader, start, self.ends[-1])


def tasks(reader: TopicStreamReader, start: PositionJson, end: PositionJson) -> list[Task]:
    return [task for task in reader.partitions(start, end) if isinstance(task, Task)]


def offsets(planned: list[Task]) -> list[list[tuple[int, int, int]]]:
    return [[(each.partition, each.start, each.end) for each in task.ranges] for task in planned]


Start = Callable[..., Query]


@pytest.fixture(params=[False, True], ids=["one batch", "wrapped"])
def query(servers: str, request: pytest.FixtureRequest) -> Iterator[Start]:
    made: list[Query] = []

    def make(topic: str, **options: str) -> Query:
        given = {"kafka.bootstrap.servers": servers, "subscribe": topic, "parallelism": "4", **options}
        made.append(Query(given, request.param))
        return made[-1]

    yield make
    for each in made:
        for reader in each.readers:
            reader.stop()


def delete_records(admin: AdminClient, topic: str, before: dict[int, int]) -> None:
    deleted = [ClientPartition(topic, partition, offset) for partition, offset in before.items()]
    for future in admin.delete_records(deleted).values():
        future.result(60)


def test_micro_batches_follow_each_other_without_a_gap(
    make_topic: MakeTopic, feed: Feed, query: Start
) -> None:
    topic = make_topic()
    feed(topic, "ab")
    reading = query(topic, startingOffsets="earliest")
    assert reading.values(reading.plan()) == [b"a", b"b"]
    feed(topic, "c")
    assert reading.values(reading.plan_another()) == [b"c"]
    feed(topic, "de")
    assert reading.values(reading.plan()) == [b"d", b"e"]
    assert reading.values(reading.plan_another()) == []
    assert reading.ends[-1] == reading.ends[-2], "with nothing new there is no micro-batch"
    assert reading.values(reading.plan()) == []


def test_a_run_that_finds_nothing_new_plans_no_micro_batch(
    make_topic: MakeTopic, feed: Feed, query: Start
) -> None:
    topic = make_topic()
    feed(topic, "ab")
    reading = query(topic)
    reading.plan()
    reading.plan()
    assert reading.ends[0] == reading.ends[1]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ({}, []),
        ({"startingOffsets": "earliest"}, [b"a", b"b", b"c"]),
        (
            {"startingTimestamp": "1001", "startingOffsetsByTimestampStrategy": "latest"},
            [b"b", b"c"],
        ),
    ],
)
def test_the_first_micro_batch_reads_from_the_start_that_the_options_name(
    make_topic: MakeTopic, feed: Feed, query: Start, start: dict[str, str], expected: list[bytes]
) -> None:
    topic = make_topic()
    for moment, value in enumerate((b"a", b"b", b"c"), 1000):
        feed.send(topic, value=value, timestamp=moment)  # type: ignore[attr-defined]
    reading = query(topic, **start)
    assert reading.values(reading.plan()) == expected
    for value in (b"d", b"e"):
        feed.send(topic, value=value, timestamp=2000)  # type: ignore[attr-defined]
    assert reading.values(reading.replay()) == expected, "though the latest offset is another"
    assert reading.values(reading.plan()) == [b"d", b"e"]


def test_a_first_micro_batch_has_its_tasks_again_though_the_earliest_offsets_have_moved(
    make_topic: MakeTopic, feed: Feed, query: Start, admin: AdminClient
) -> None:
    topic = make_topic(3)
    for partition in range(3):
        feed(topic, range(300), partition)
    reading = query(topic, startingOffsets="earliest", failOnDataLoss="false")
    assert offsets(reading.plan()) == [[(0, 0, 300)], [(1, 0, 300)], [(2, 0, 300)]]
    delete_records(admin, topic, {0: 300, 1: 100})
    left = [[], [(1, 100, 300)], [(2, 0, 300)]]
    assert offsets(reading.replay()) == left
    assert offsets(reading.replay_with_a_newer_spark()) == left
    with pytest.raises(DataLossError, match=f"{topic}-0: offsets 0 to 299 are gone"):
        reading.replay(failOnDataLoss="true")


def test_a_new_partition_that_loses_records_leaves_the_tasks_as_they_were(
    make_topic: MakeTopic, feed: Feed, query: Start, admin: AdminClient
) -> None:
    topic = make_topic()
    reading = query(topic, failOnDataLoss="false", minPartitions="4")
    reading.plan()
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(60)
    feed(topic, range(100))
    feed(topic, range(100), partition=1)
    planned = offsets(reading.plan())
    assert planned == [[(0, 0, 50)], [(0, 50, 100)], [(1, 0, 50)], [(1, 50, 100)]]
    delete_records(admin, topic, {1: 60})
    left = [[(0, 0, 50)], [(0, 50, 100)], [], [(1, 60, 100)]]
    assert offsets(reading.replay()) == left
    assert offsets(reading.replay_with_a_newer_spark()) == left


def test_a_restarted_query_does_not_mind_a_start_that_no_longer_fits(
    make_topic: MakeTopic, feed: Feed, query: Start, admin: AdminClient
) -> None:
    topic = make_topic()
    feed(topic, "ab")
    start = json.dumps({topic: {"0": 1}})
    reading = query(topic, startingOffsets=start)
    assert reading.values(reading.plan()) == [b"b"]
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(60)
    feed(topic, "c", partition=1)
    assert reading.values(reading.plan()) == [b"c"]
    with pytest.raises(ConfigError, match=r"name every partition that is read; missing: .*-1"):
        query(topic, startingOffsets=start).plan()


def test_what_is_processed_is_committed_when_the_next_micro_batch_is_planned(
    make_topic: MakeTopic, feed: Feed, query: Start, admin: AdminClient
) -> None:
    topic, group = make_topic(), f"lag-{uuid.uuid4()}"
    feed(topic, "ab")
    reading = query(
        topic, **{"startingOffsets": "earliest", "commitOffsets": "true", "kafka.group.id": group}
    )
    reading.plan()
    feed(topic, "c")
    reading.plan_another()
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(60)
    assert [each.offset for each in asked.topic_partitions] == [2]
