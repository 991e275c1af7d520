"""Plans of offsets: the range of a micro-batch, and its division into tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.types import TopicPartition
from barnabas.spark.ranges import OffsetRange, Task, from_json, limit_to, plan_tasks, to_json

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)

partitions = st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 20))
offsets = st.dictionaries(partitions, st.integers(0, 10**12), max_size=12)


@st.composite
def lags(draw: st.DrawFn) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    start = draw(offsets)
    return start, {tp: offset + draw(st.integers(0, 10**6)) for tp, offset in start.items()}


@st.composite
def some_ranges(draw: st.DrawFn) -> list[OffsetRange]:
    start, end = draw(lags())
    return [OffsetRange(tp.topic, tp.partition, start[tp], end[tp]) for tp in start]


def sizes(tasks: list[Task]) -> list[int]:
    return [sum(each.size for each in task.ranges) for task in tasks]


@given(offsets)
def test_offsets_come_back_from_json_as_they_went(some: dict[TopicPartition, int]) -> None:
    assert from_json(to_json(some)) == some


def test_offsets_are_written_as_sparks_kafka_connector_writes_them() -> None:
    assert to_json({B0: 7, A1: 2, A0: 1}) == {"a": {"0": 1, "1": 2}, "b": {"0": 7}}


def test_a_limit_is_shared_in_proportion_to_the_lag() -> None:
    assert limit_to(100, {A0: 0, A1: 1000, B0: 5}, {A0: 900, A1: 1100, B0: 5}) == {A0: 90, A1: 1010, B0: 5}


def test_a_small_partition_does_not_starve_behind_a_large_one() -> None:
    assert limit_to(10, {A0: 0, A1: 0}, {A0: 1_000_000, A1: 1})[A1] == 1


def test_less_than_the_limit_is_taken_whole() -> None:
    assert limit_to(100, {A0: 0, A1: 0}, {A0: 60, A1: 40}) == {A0: 60, A1: 40}


@given(lags(), st.integers(1, 10**7))
def test_a_limited_batch_stays_in_bounds_and_always_gets_on(
    lag: tuple[dict[TopicPartition, int], dict[TopicPartition, int]], limit: int
) -> None:
    start, available = lag
    end = limit_to(limit, start, available)
    assert set(end) == set(available)
    assert all(start[tp] <= end[tp] <= available[tp] for tp in end)
    assert all(end[tp] > start[tp] for tp in end if available[tp] > start[tp])
    assert sum(end.values()) - sum(start.values()) <= limit + len(end)


def test_small_partitions_share_a_task_on_each_core() -> None:
    tasks = plan_tasks([OffsetRange("a", number, 0, 100) for number in range(9)], 2)
    assert sorted(sizes(tasks)) == [400, 500]


def test_large_partitions_have_a_task_each() -> None:
    tasks = plan_tasks([OffsetRange("a", number, 0, 1_000_000) for number in range(5)], 2)
    assert sizes(tasks) == [1_000_000] * 5


def test_empty_ranges_make_no_task() -> None:
    assert plan_tasks([OffsetRange("a", 0, 5, 5)], 2) == []
    assert plan_tasks([OffsetRange("a", 0, 5, 5)], 2, min_partitions=4) == []


def test_min_partitions_keeps_small_partitions_apart() -> None:
    assert len(plan_tasks([OffsetRange("a", number, 0, 10) for number in range(6)], 1, min_partitions=5)) == 5


def test_min_partitions_splits_the_large_in_proportion() -> None:
    tasks = plan_tasks([OffsetRange("a", 0, 10, 100), OffsetRange("a", 1, 0, 10)], 2, min_partitions=10)
    assert sizes(tasks) == [10] * 10
    assert tasks[0].ranges == [OffsetRange("a", 0, 10, 20)]


@given(some_ranges(), st.integers(1, 8), st.none() | st.integers(1, 40))
def test_tasks_cover_every_offset_once(
    planned: list[OffsetRange], parallelism: int, min_partitions: int | None
) -> None:
    tasks = plan_tasks(planned, parallelism, min_partitions)
    parts = sorted(part for task in tasks for part in task.ranges)
    assert all(part.size > 0 for part in parts)
    assert all(task.ranges for task in tasks)
    for whole in planned:
        mine = [part for part in parts if part[:2] == whole[:2]]
        edges = [whole.start, *(part.end for part in mine)]
        assert [part.start for part in mine] == edges[:-1]
        assert edges[-1] == whole.end
    for task in tasks:
        assert len({part[:2] for part in task.ranges}) == len(task.ranges)
