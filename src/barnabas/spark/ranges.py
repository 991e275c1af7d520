"""Computes, without I/O, the offsets that a micro-batch reads, and divides them into tasks.

The JSON of offsets has the form of Spark's own Kafka connector, ``{"orders": {"0": 23, "1": 7}}``: the offset
of the next record of each partition.
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

#: The JSON form of `Offsets` in options and progress reports.
OffsetsJson: TypeAlias = dict[str, dict[str, int]]

#: The number of records whose read takes as long as the start of a task (about 50 ms).
RECORDS_WORTH_A_TASK = 20_000


def to_json(offsets: Mapping[TopicPartition, Offset]) -> OffsetsJson:
    """Return the JSON of offsets, in a fixed order."""
    nested: OffsetsJson = {}
    for topic, partition in sorted(offsets):
        nested.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return nested


def from_json(nested: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Parse the output of `to_json`.

    Raises:
        ValueError: a partition is not a number.
    """
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in nested.items()
        for partition, offset in partitions.items()
    }


class OffsetRange(NamedTuple):
    """The records of one partition from offset `start` up to, but without, `end`."""

    topic: str
    partition: int
    start: Offset
    end: Offset

    @property
    def size(self) -> int:
        """Largest possible number of records: compaction and transaction markers leave gaps."""
        return self.end - self.start

    def within(self, start: Offset, end: Offset) -> OffsetRange:
        """Return the part from `start` up to, but without, `end`. It may be empty."""
        return self._replace(start=max(self.start, start), end=min(self.end, end))


@dataclass
class Task(InputPartition):
    """The ranges that one Spark task reads, one after another.

    `topic_ids` has the ids, by name, that the topics had when the task was planned; unknown ids are left out.
    """

    ranges: list[OffsetRange]
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, ranges: list[OffsetRange], topic_ids: Mapping[str, str]) -> Self:
        """Make a task for `ranges`. From `topic_ids`, it keeps only the ids of the topics in `ranges`."""
        return cls(ranges, {each.topic: topic_ids[each.topic] for each in ranges if each.topic in topic_ids})


def limit_to(
    limit: int, start: Offsets, available: Offsets, size: Callable[[TopicPartition], float] = lambda _: 1
) -> Offsets:
    """Return the end offsets of a micro-batch of about `limit` records; with `size`, of about `limit` bytes.

    Each partition gets a share in proportion to its lag. Every partition with a lag advances by at least one
    record, so that large partitions do not block small ones. Therefore the result can exceed the limit, as in
    Spark's own connector.

    Args:
        start: the offsets at which the micro-batch begins.
        available: the latest offsets.
        size: returns the size of one record of a partition in bytes.
    """
    lag = {tp: behind for tp, behind in lag_of(available, start).items() if behind}
    total = sum(behind * size(tp) for tp, behind in lag.items())
    if total <= limit:
        return dict(available)
    share = {tp: max(1, int(behind * limit // total)) for tp, behind in lag.items()}
    return {tp: start[tp] + share[tp] if tp in share else end for tp, end in available.items()}


def plan_tasks(
    ranges: list[OffsetRange],
    parallelism: int,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[Task]:
    """Divide `ranges` into tasks, without empty ranges. The same arguments always give the same tasks.

    - If `max_records` is given, a range of more records is divided into parts of at most `max_records`. Each
      part, and each range that is not divided, has its own task.
    - If `min_partitions` exceeds the number of these ranges and parts, each of them is divided further. The
      number of its new parts is proportional to its size, rounded, and at least 1. So there can be fewer or
      more tasks than `min_partitions`. Each part has its own task.
    - In all other cases no range is divided, and small ranges share a task. There is one task for each
      `RECORDS_WORTH_A_TASK` records, but at least `parallelism` and `min_partitions` tasks. There are never
      more tasks than ranges.
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
    """Distribute `ranges` to `count` tasks of about the same size.

    Beginning with the largest, each range is added to the task that has the fewest records so far.
    """
    tasks = [Task([]) for _ in range(count)]
    emptiest = [(0, index) for index in range(count)]
    for each in sorted(ranges, key=lambda each: -each.size):
        size, index = heapq.heappop(emptiest)
        tasks[index].ranges.append(each)
        heapq.heappush(emptiest, (size + each.size, index))
    return tasks
