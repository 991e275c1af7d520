"""The offsets to read after filters: never fewer than the filters accept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from barnabas.base.types import TopicPartition
from barnabas.spark.pushdown import wanted_by

OFFSET = ("offset",)


@pytest.mark.parametrize(
    ("filters", "start", "end"),
    [
        ([GreaterThan(OFFSET, 5)], 6, 100),
        ([GreaterThanOrEqual(OFFSET, 5), LessThan(OFFSET, 8)], 5, 8),
        ([LessThanOrEqual(OFFSET, 8)], 0, 9),
        ([EqualTo(OFFSET, 7)], 7, 8),
        ([In(OFFSET, (9, 3, None))], 3, 10),
        ([GreaterThan(OFFSET, 8), LessThan(OFFSET, 3)], 9, 9),
        ([LessThan(OFFSET, -4)], 0, 0),
        ([Not(EqualTo(OFFSET, 7)), IsNotNull(OFFSET), EqualTo(("value",), b"x")], 0, 100),
    ],
)
def test_offsets_are_narrowed(filters: list[Filter], start: int, end: int) -> None:
    wanted = wanted_by(filters)
    assert (wanted.clamp(0), wanted.clamp(100)) == (start, end)


def test_partitions_and_topics_are_chosen_by_all_filters_together() -> None:
    wanted = wanted_by([In(("partition",), (0, 1)), EqualTo(("partition",), 1), EqualTo(("topic",), "a")])
    places = [TopicPartition(topic, partition) for topic in "ab" for partition in range(3)]
    assert [place for place in places if wanted.includes(place)] == [TopicPartition("a", 1)]


def test_a_time_bounds_the_start_only() -> None:
    moment = datetime(1970, 1, 1, 1, 0, 5, tzinfo=timezone(timedelta(hours=1)))
    column = ("timestamp",)
    assert wanted_by([GreaterThan(column, moment)]).not_before == 5000
    later = moment + timedelta(microseconds=1500)
    assert wanted_by([GreaterThanOrEqual(column, later), GreaterThan(column, moment)]).not_before == 5001
    assert wanted_by([LessThan(column, moment)]).not_before is None
    assert wanted_by([GreaterThan(column, datetime(1969, 1, 1, tzinfo=UTC))]).not_before is None
