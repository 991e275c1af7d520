"""Plans over offsets: the offsets to read now, and the tasks that read them. No I/O.

Offsets as JSON have the form of Spark's own Kafka connector, ``{"orders": {"0": 23, "1": 7}}``: for each
partition the offset of the next record to read.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self, TypeAlias

from pyspark.sql.datasource import InputPartition

from barnabas.base.types import Offset, TopicPartition
from barnabas.client.lag import lag_of

#: the offset of the next record to read, by partition
Offsets: TypeAlias = dict[TopicPartition, Offset]

#: What `Offsets` are in options and reports.
OffsetsJson: TypeAlias = dict[str, dict[str, int]]

#: A task costs about 50 ms whatever it reads; this many records take about as long.
RECORDS_WORTH_A_TASK = 20_000


def to_json(offsets: Mapping[TopicPartition, Offset]) -> OffsetsJson:
    """Offsets as JSON has them, in a stable order."""
    nested: OffsetsJson = {}
    for topic, partition in sorted(offsets):
        nested.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return nested


def from_json(nested: Mapping[str, Mapping[str, int]]) -> Offsets:
    """The inverse of `to_json`.

    Raises:
        ValueError: a partition is not a number.
    """
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in nested.items()
        for partition, offset in partitions.items()
    }


class OffsetRange(NamedTuple):
    """Records of one partition from offset `start` up to, not including, `end`."""

    topic: str
    partition: int
    start: Offset
    end: Offset

    @property
    def size(self) -> int:
        """At most this many records: compaction and transaction markers leave gaps."""
        return self.end - self.start

    def within(self, start: Offset, end: Offset) -> OffsetRange:
        """The part from `start` up to, not including, `end`; it may be empty."""
        return self._replace(start=max(self.start, start), end=min(self.end, end))


@dataclass
class Task(InputPartition):
    """The ranges that one Spark task reads, one after another.

    `topic_ids` are the known ids of the topics that the ranges were planned for.
    """

    ranges: list[OffsetRange]
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, ranges: list[OffsetRange], topic_ids: Mapping[str, str]) -> Self:
        """A task with the ids of its own topics, from all `topic_ids`."""
        return cls(ranges, {each.topic: topic_ids[each.topic] for each in ranges if each.topic in topic_ids})


def limit_to(
    most: int, start: Offsets, available: Offsets, size: Callable[[TopicPartition], float] = lambda _: 1
) -> Offsets:
    """The end of a micro-batch of about `most` records, shared in proportion to lag.

    Every partition that lags advances by at least one, so that none starves behind a large one. By that much
    the result can exceed the limit, as in Spark's own connector.

    Args:
        size: the size of a partition's records, in the unit of `most`.
    """
    lag = {tp: behind for tp, behind in lag_of(available, start).items() if behind}
    total = sum(behind * size(tp) for tp, behind in lag.items())
    if total <= most:
        return dict(available)
    share = {tp: max(1, int(behind * most // total)) for tp, behind in lag.items()}
    return {tp: start[tp] + share[tp] if tp in share else end for tp, end in available.items()}


def plan_tasks(
    ranges: list[OffsetRange],
    parallelism: int,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[Task]:
    """The tasks that read `ranges`, empty ones left out. The same arguments give the same tasks, always.

    Small partitions share a task, down to `parallelism` tasks; large ones keep one of their own. With more
    `min_partitions` than ranges, the large are split in proportion to their size; rounding can make it one
    or two tasks less or more. No task has more than `max_records`.
    """
    ranges = [each for each in ranges if each.size > 0]
    if max_records is not None:
        ranges = [part for each in ranges for part in _cut(each, -(-each.size // max_records))]
    if min_partitions is not None and min_partitions > len(ranges):
        return [Task([part]) for each in ranges for part in _split(each, ranges, min_partitions)]
    if max_records is not None:
        return [Task([each]) for each in ranges]
    total = sum(each.size for each in ranges)
    tasks = max(min_partitions or 0, parallelism, -(-total // RECORDS_WORTH_A_TASK))
    return _pack(ranges, min(tasks, len(ranges)))


def _split(whole: OffsetRange, ranges: list[OffsetRange], parts_in_all: int) -> list[OffsetRange]:
    total = sum(each.size for each in ranges)
    return _cut(whole, min(max(1, round(whole.size / total * parts_in_all)), whole.size))


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    cuts = [whole.start + whole.size * part // parts for part in range(parts + 1)]
    return [whole._replace(start=low, end=high) for low, high in itertools.pairwise(cuts)]


def _pack(ranges: list[OffsetRange], count: int) -> list[Task]:
    """`ranges` in `count` tasks of about the same size: the largest first, each to the emptiest task."""
    tasks = [Task([]) for _ in range(count)]
    emptiest = [(0, index) for index in range(count)]
    for each in sorted(ranges, key=lambda each: -each.size):
        size, index = heapq.heappop(emptiest)
        tasks[index].ranges.append(each)
        heapq.heappush(emptiest, (size + each.size, index))
    return tasks
