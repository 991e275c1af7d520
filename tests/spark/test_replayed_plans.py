"""A micro-batch that is planned again, by another driver or after losses: its tasks are the same."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.spark.committed import committed_values

from barnabas.spark.exactly_once import WriteId, write_once
from barnabas.spark.open_ranges import DataLossError
from barnabas.spark.options import ReadOptions, WriteOptions
from barnabas.spark.plan import PlanError
from barnabas.spark.position import Position, PositionJson
from barnabas.spark.ranges import Task
from barnabas.spark.stream_reader import TopicStreamReader

MakeTopic = Callable[..., str]
Feed = Callable[..., None]


class Query:
    """The driver of a query, on a machine with this number of cores."""

    def __init__(self, servers: str, cores: int, topic: str, **options: str) -> None:
        options |= {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
        self.servers = servers
        self.cores = cores
        self.reader = TopicStreamReader(ReadOptions.parse(options, streaming=True))

    def next(self, start: PositionJson) -> PositionJson:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("os.cpu_count", lambda: self.cores)
            return self.reader.latestOffset(start, ReadAllAvailable())

    def plan(self, start: PositionJson, end: PositionJson) -> list[Task]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("os.cpu_count", lambda: self.cores)
            return [task for task in self.reader.partitions(start, end) if isinstance(task, Task)]

    def write(self, task: Task, sink: str, number: int, target: str) -> None:
        options = WriteOptions(
            {"bootstrap.servers": self.servers, "log_level": "0"}, target, exactly_once=True
        )
        values = (
            pa.RecordBatch.from_pydict({"value": batch.column("value")}) for batch in self.reader.read(task)
        )
        write_once(options, WriteId(sink, 0, number), values)


@pytest.fixture
def query(servers: str) -> Iterator[Callable[..., Query]]:
    made: list[Query] = []

    def make(cores: int, topic: str, **options: str) -> Query:
        made.append(Query(servers, cores, topic, **options))
        return made[-1]

    yield make
    for each in made:
        each.reader.stop()


@pytest.fixture
def source(make_topic: MakeTopic, feed: Feed) -> str:
    topic = make_topic(4)
    for partition in range(4):
        feed(topic, (f"{partition}-{number}" for number in range(300)), partition)
    return topic


def everything() -> list[str]:
    return sorted(f"{partition}-{number}" for partition in range(4) for number in range(300))


def test_a_driver_with_fewer_cores_writes_no_row_twice(
    servers: str, source: str, make_topic: MakeTopic, query: Callable[..., Query]
) -> None:
    """The first task of a batch fails after the others have committed, and the query
    moves to another machine.
    """
    target, sink = make_topic(), uuid.uuid4().hex
    first = query(4, source)
    start = first.reader.initialOffset()
    end = first.next(start)
    tasks = first.plan(start, end)
    assert len(tasks) == 4
    for number, task in enumerate(tasks):
        if number != 0:
            first.write(task, sink, number, target)
    second = query(1, source)
    again = second.plan(start, end)
    assert again == tasks
    for number, task in enumerate(again):
        second.write(task, sink, number, target)
    assert committed_values(servers, target) == everything()


@pytest.mark.parametrize(
    "changed", [{"minPartitions": "9"}, {"maxRecordsPerPartition": "50"}, {"parallelism": "3"}]
)
def test_options_that_change_hold_from_the_next_batch_on(
    source: str, feed: Feed, query: Callable[..., Query], changed: dict[str, str]
) -> None:
    first, second = query(2, source), query(2, source, **changed)
    start = first.reader.initialOffset()
    end = first.next(start)
    assert second.plan(start, end) == first.plan(start, end)
    for partition in range(4):
        feed(source, range(300), partition)
    after = second.next(end)
    assert second.plan(end, after) != first.plan(end, first.next(end))


def test_records_that_are_gone_leave_the_other_tasks_where_they_were(
    source: str, query: Callable[..., Query], admin: AdminClient
) -> None:
    first = query(4, source)
    start = first.reader.initialOffset()
    end = first.next(start)
    tasks = first.plan(start, end)
    deleted = [ClientPartition(source, 0, 300), ClientPartition(source, 2, 100)]
    for future in admin.delete_records(deleted).values():
        future.result(60)
    left = query(1, source, failOnDataLoss="false").plan(start, end)
    assert len(left) == 4
    partitions = [{each.partition for each in task.ranges} for task in tasks]
    assert partitions == [{0}, {1}, {2}, {3}]
    assert [[(each.partition, each.start, each.end) for each in task.ranges] for task in left] == [
        [], [(1, 0, 300)], [(2, 100, 300)], [(3, 0, 300)],
    ]  # fmt: skip


def test_a_new_partition_that_loses_records_leaves_the_tasks_as_they_were(
    source: str, query: Callable[..., Query], admin: AdminClient
) -> None:
    """The checkpoint does not have the start of the new partition, and this start moves."""
    first = query(4, source, minPartitions="8", failOnDataLoss="false")
    start = {source: {"0": 300}}
    end = first.next(start)
    tasks = first.plan(start, end)
    deleted = [ClientPartition(source, 1, 299)]
    for future in admin.delete_records(deleted).values():
        future.result(60)
    left = query(1, source, failOnDataLoss="false").plan(start, end)
    assert len(left) == len(tasks)
    for task, before in zip(left, tasks, strict=True):
        assert {each.partition for each in task.ranges} <= {each.partition for each in before.ranges}


def test_a_first_batch_starts_where_it_was_planned_to_though_the_earliest_offsets_have_moved(
    source: str, query: Callable[..., Query], admin: AdminClient
) -> None:
    """No checkpoint has the start of the first batch: Spark asks for it again."""
    first = query(4, source)
    start = first.reader.initialOffset()
    end = first.next(start)
    assert len(first.plan(start, end)) == 4
    deleted = [ClientPartition(source, 0, 300), ClientPartition(source, 2, 100)]
    for future in admin.delete_records(deleted).values():
        future.result(60)
    strict, lenient = query(1, source), query(1, source, failOnDataLoss="false")
    later = strict.reader.initialOffset()
    assert later != start
    lost = f"{source}-0: offsets 0 to 299 are gone; {source}-2: offsets 0 to 99 are gone"
    with pytest.raises(DataLossError, match=lost):
        strict.plan(later, end)
    assert lenient.reader.initialOffset() == later
    left = lenient.plan(later, end)
    assert [[(each.partition, each.start, each.end) for each in task.ranges] for task in left] == [
        [], [(1, 0, 300)], [(2, 100, 300)], [(3, 0, 300)],
    ]  # fmt: skip


def test_nothing_new_is_the_same_position(source: str, query: Callable[..., Query]) -> None:
    """For any other position, Spark would run a batch."""
    first, second = query(4, source), query(1, source)
    end = first.next(first.reader.initialOffset())
    assert second.next(end) == end


def test_a_batch_that_was_planned_nobody_knows_how_is_refused(
    source: str, query: Callable[..., Query]
) -> None:
    """Earlier checkpoints do not contain the number of their driver's cores."""
    start, end = {source: {"0": 0, "1": 0}}, {source: {"0": 300, "1": 300}}
    with pytest.raises(PlanError, match="does not say how its tasks were planned"):
        query(1, source).plan(start, end)
    one = {source: {"0": 300, "1": 0}}
    assert len(query(1, source).plan(start, one)) == 1, "one partition can be planned in one way only"
    assert len(query(1, source, minPartitions="2").plan(start, end)) == 2


def test_a_plan_of_a_later_version_is_refused(source: str, query: Callable[..., Query]) -> None:
    first = query(2, source)
    start = first.reader.initialOffset()
    end = first.next(start)
    plan = Position.from_json(end).plan
    assert plan is not None
    end["#plan"] = {**plan.to_json(), "version": 3}
    with pytest.raises(PlanError, match="version 3"):
        first.plan(start, end)


def test_a_partition_added_after_a_first_batch_was_planned_is_no_loss(
    source: str, query: Callable[..., Query], admin: AdminClient
) -> None:
    first = query(4, source)
    start = first.reader.initialOffset()
    end = first.next(start)
    tasks = first.plan(start, end)
    admin.create_partitions([NewPartitions(source, 5)])[source].result(60)
    again = query(4, source)
    assert again.plan(again.reader.initialOffset(), end) == tasks


def test_a_topic_made_anew_leaves_the_tasks_of_the_others_where_they_were(
    source: str, make_topic: MakeTopic, feed: Feed, query: Callable[..., Query], admin: AdminClient
) -> None:
    other = make_topic()
    feed(other, range(900))
    first = query(4, f"{source},{other}")
    start = first.next(first.reader.initialOffset())
    feed(other, range(200))
    feed(source, range(300))
    end = first.next(start)
    tasks = first.plan(start, end)
    assert [{each.topic for each in task.ranges} for task in tasks] == [{source}, {other}]
    admin.delete_topics([other])[other].result(60)
    make_topic(name=other)
    left = query(4, f"{source},{other}", failOnDataLoss="false").plan(start, end)
    assert [task.ranges for task in left] == [tasks[0].ranges, []]
