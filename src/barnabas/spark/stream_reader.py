"""Reads topics in streams: ``spark.readStream.format("barnabas")``.

A query divides its stream into micro-batches. On Spark's driver, one Python process plans them. It has one
`TopicStreamReader` from the start of the query to its stop. Executors are the processes that read the
records. Each task gets a pickled copy of the reader, and calls only `read`.

Before Spark runs a micro-batch, it stores the end position in the query's checkpoint, which is a folder. A
position has the next offset of each partition. So a micro-batch that Spark repeats after a failure reads the
same offsets again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from barnabas.base.errors import ConfigError
from barnabas.base.types import Offset, TopicPartition
from barnabas.spark.admission import Admission
from barnabas.spark.batch_reader import read_task
from barnabas.spark.lookup import OffsetLookup
from barnabas.spark.open_ranges import gone, report_data_loss
from barnabas.spark.options import ReadOptions
from barnabas.spark.plan import Plan, unknown_plan
from barnabas.spark.position import Position, PositionJson
from barnabas.spark.pyspark_versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from barnabas.spark.ranges import OffsetRange, Offsets, OffsetsJson, Task, to_json

#: The task of a batch without records. A sink needs at least one task to mark the batch as written.
_NOTHING_TO_READ = Task([])


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the micro-batches of a query that reads topics, and reads their records.

    Spark calls the methods. Partitions that are added while the query runs are read from their earliest
    offset.

    Args:
        options: the options of the data source, such as the topics and the start.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._lookup_: OffsetLookup | None = None
        self._initial: PositionJson | None = None
        self._start_is_noted = False
        self._latest: Offsets | None = None
        self._reported: tuple[Offsets, OffsetsJson] | None = None
        self._idle: tuple[PositionJson, Offsets] | None = None
        self._target: Offsets | None = None
        self._admission = Admission(options)

    @property
    def _lookup(self) -> OffsetLookup:
        """Return the lookup. The first use creates it, because readers in executors need none."""
        if self._lookup_ is None:
            self._lookup_ = OffsetLookup(self._options)
        return self._lookup_

    def initialOffset(self) -> PositionJson:
        """Return the start of a new query. A restarted query starts at its checkpoint instead.

        Spark calls this method again when it plans the first micro-batch. Each call returns the result of the
        first call.
        """
        if self._initial is None:
            self._initial = self._find_start().to_json()
        return self._initial

    def _find_start(self) -> Position:
        """Return the position at which a new query begins, according to the options."""
        start = self._lookup.resolve(self._options.starting, self._lookup.partitions())
        if self._target is not None and self._options.starting.moves:  # the end, when it was looked up
            start = {tp: min(offset, self._target.get(tp, offset)) for tp, offset in start.items()}
        return Position(start, self._topic_ids(start))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the first limit of the options, so that Spark knows of a limit.

        Return ReadAllAvailable if the options have no limit.

        Spark has no composite limits for Python data sources. `latestOffset` applies all options.
        """
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Store the present end offsets as the end of this run. Later records are for the next run.

        Spark calls this method if the query has the trigger availableNow.
        """
        self._target = self._ask_latest()

    def latestOffset(self, start: PositionJson, limit: ReadLimit) -> PositionJson:
        """Return the end of the next micro-batch; `start` itself if there is none.

        With `ReadAllAvailable`, the micro-batch ends at the latest offsets. With any other `limit`, the
        limits in the options apply. With the option commitOffsets, commit `start` to the query's group,
        because Spark has processed all records before `start`.
        """
        if self._options.commit_offsets:
            self._lookup.commit(Position.from_json(start).offsets)
        self._latest = latest = self._ask_latest() if self._target is None else self._target
        if self._only_notes_start(start):
            self._start_is_noted = True
            return start
        if self._is_idle_still(start, latest):
            return start
        end = self._end(start, latest, limit)
        if end == start:
            self._idle = start, latest
        return end

    def _is_idle_still(self, start: PositionJson, latest: Offsets) -> bool:
        """Whether an earlier trigger with this `start` and this `latest` has found no micro-batch to run.

        Only the last trigger that found no micro-batch counts. Most triggers of most queries have no new
        records. So the cost of this check must not grow with the number of partitions.

        The result is always False with the trigger availableNow. It is also always False with the option
        minOffsetsPerTrigger, because a micro-batch can then become due when time passes.
        """
        waits_for_more = self._options.min_offsets_per_trigger is not None
        if self._idle is None or self._target is not None or waits_for_more:
            return False
        return self._idle[1] is latest and self._idle[0] == start

    def _end(self, start: PositionJson, latest: Offsets, limit: ReadLimit) -> PositionJson:
        processed = Position.from_json(start)
        # an id that cannot be asked for just now is as it was
        ids = {**processed.topic_ids, **self._topic_ids(latest)}
        if isinstance(limit, ReadAllAvailable):
            return self._next(start, processed, Position(latest, ids))
        begin = self._readable_start(processed, Position(latest, ids))
        # with a frozen end nothing more comes: to wait would be to wait for ever
        if self._target is None and self._admission.waits(begin, latest):
            return start
        max_records = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = self._admission.end(begin, latest, max_records, lambda: self._lookup.sample(begin, latest))
        return self._next(start, processed, Position(end, ids))

    def _next(self, start: PositionJson, processed: Position, end: Position) -> PositionJson:
        """Return `end` with the plan of the micro-batch; `start` itself if there are no new records.

        `processed` is `start`, parsed.

        Spark compares positions as JSON, and runs a micro-batch if they differ at all. So the result must be
        exactly `start` if there are no new records.
        """
        if replace(processed, plan=None).to_json() == end.to_json():
            return start
        starts = processed.other_starts(end, self._lookup.earliest)
        if start == self._initial:  # no checkpoint holds it, and the next answer to Spark may be another one
            starts = {**processed.offsets, **starts}
        return replace(end, plan=Plan.of(self._options, starts)).to_json()

    def reportLatestOffset(self) -> OffsetsJson:
        """Return the latest offsets of the last lookup, for the query's progress report."""
        if self._latest is None:  # after a restart, when a batch was planned before it
            self._latest = self._ask_latest()
        if self._reported is None or self._reported[0] is not self._latest:
            self._reported = self._latest, to_json(self._latest)
        return self._reported[1]

    def partitions(self, start: PositionJson, end: PositionJson) -> list[InputPartition]:
        """Return the tasks that read the records between `start` and `end`.

        The plan in `end` determines the tasks. If the query was restarted, this plan may be old, and records
        may be lost since. Then this method raises DataLossError. If failOnDataLoss is false, it only logs a
        warning, and the tasks leave out the lost records. If no records are left to read, the result is one
        empty task.
        """
        begin, stop = Position.from_json(start), Position.from_json(end)
        if stop.plan is None and self._only_notes_start(start):  # a replay: only `latestOffset` makes a batch
            return [_NOTHING_TO_READ]
        if stop.plan is not None:
            begin, stop = _as_planned(begin, stop, stop.plan, is_first=start == self._initial)
        there = self._lookup.still_there(stop.offsets)
        # an id that cannot be asked for just now is what it was when the batch was planned
        ids = {**stop.topic_ids, **self._topic_ids(stop.offsets)}
        now = Position({tp: offset for tp, offset in stop.offsets.items() if tp in there}, ids)
        readable = self._readable_start(begin, now)
        losses = [f"{tp}: the partition is gone" for tp in sorted({*begin.offsets, *stop.offsets} - there)]
        losses += _losses(begin, stop, now, readable)
        if losses:
            report_data_loss("; ".join(losses), fail=self._options.fail_on_data_loss)
        left = {
            tp: (last if stop.was_recreated(tp.topic, ids) else readable[tp], last)
            for tp, last in now.offsets.items()
        }  # the records of a new topic are for the next micro-batch
        tasks = [_what_is_left(task, left, ids) for task in self._planned(begin, stop)]
        return list(tasks) if any(task.ranges for task in tasks) else [_NOTHING_TO_READ]

    def _planned(self, begin: Position, stop: Position) -> list[Task]:
        """Return the tasks of the micro-batch, as the plan in `stop` divides its records.

        Lost records are included; the caller removes them. If `stop` has no plan, `unknown_plan` is used.
        """
        starts = begin.offsets if stop.plan is None else {**begin.offsets, **stop.plan.starts}
        ranges = [OffsetRange(*tp, starts.get(tp, 0), end) for tp, end in sorted(stop.offsets.items())]
        return unknown_plan(self._options, ranges) if stop.plan is None else stop.plan.tasks(ranges)

    def _only_notes_start(self, start: PositionJson) -> bool:
        """Whether the next batch is empty, and only writes the start of a new query to the checkpoint.

        The result is True once: for the first batch of a new query whose start can change with new records
        (`Bound.moves`). A checkpoint contains only the ends of batches. So this first batch ends where the
        query starts. A query that is killed before it has processed a record then finds its start in the
        checkpoint.
        """
        return start == self._initial and self._options.starting.moves and not self._start_is_noted

    def _readable_start(self, start: Position, end: Position) -> Offsets:
        """Return the first offset to read of each partition in `end`.

        - The offset in `end`, if nothing is left to read, or the log was truncated to before `start`.
        - The earliest offset, if the partition is new, its topic was created again, or the records at
          `start` do not exist any more.
        - The offset in `start` in all other cases.
        """
        readable = {}
        unknown = []
        for tp, stop in end.offsets.items():
            is_read = start.offsets.get(tp) == stop and not start.was_recreated(tp.topic, end.topic_ids)
            if is_read or start.was_cut(end, tp):  # with nothing to read, there is nothing to lose
                readable[tp] = stop
            else:
                unknown.append(tp)
        for tp, earliest in self._lookup.earliest(unknown).items():
            begin = start.offsets.get(tp, earliest)
            # a log that ends before the start is another log, too
            anew = begin > end.offsets[tp] or start.was_recreated(tp.topic, end.topic_ids)
            readable[tp] = earliest if begin < earliest or anew else begin
        return readable

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task, in an executor's Python worker."""
        return read_task(self._options, partition)

    def commit(self, end: PositionJson) -> None:
        """Commit `end` to the query's group, if the option commitOffsets is set.

        Spark calls this when it has processed the micro-batch that ends at `end`.
        """
        if self._options.commit_offsets:
            self._lookup.commit(Position.from_json(end).offsets)

    def stop(self) -> None:
        if self._lookup_ is not None:
            self._lookup_.close()
            self._lookup_ = None

    def _ask_latest(self) -> Offsets:
        # what is gone since the start is data loss, which `partitions` judges, and no mistake in the options
        return self._lookup.latest(self._lookup.partitions(must_exist=False))

    def _topic_ids(self, offsets: Offsets) -> dict[str, str]:
        return self._lookup.topic_ids(sorted({tp.topic for tp in offsets}))


class UnlimitedStreamReader(TopicStreamReader):
    """The source of a stream in PySpark 4.1. PySpark 4.1 has no read limits for Python data sources.

    It also calls `latestOffset` without the start of the micro-batch. So this class remembers the end of the
    previous micro-batch. When a query starts, Spark may call `latestOffset` before this class can know
    whether the query is new or restarted. So the plan of the first micro-batch has two sets of start offsets:
    one for a new query, and one for a restarted query.
    """

    #: the end of the micro-batch that was planned last
    _last_end: PositionJson | None = None
    #: the start, if the query is new
    _start: Position | None = None

    def latestOffset(self) -> PositionJson:  # type: ignore[override]
        """Return the end of the next micro-batch; the end of the previous one if there are no new records."""
        if self._last_end is None:
            self._last_end = self._first_end()
        else:
            self._last_end = super().latestOffset(self._last_end, ReadAllAvailable())
        return self._last_end

    def _first_end(self) -> PositionJson:
        with suppress(ConfigError):  # a restarted query needs no start, and a new one raises it again
            self._start = super()._find_start()
        self._latest = latest = self._ask_latest()
        earliest = self._lookup.earliest(latest)
        initial = earliest if self._start is None else self._start.offsets
        plan = replace(Plan.of(self._options, earliest), initial=initial)
        return Position(latest, self._topic_ids(latest), plan).to_json()

    def _find_start(self) -> Position:
        return self._start or super()._find_start()

    def partitions(self, start: PositionJson, end: PositionJson) -> list[InputPartition]:
        """Return the tasks of a micro-batch, and store `end` as the start of the next one.

        After a restart, Spark may pass the end of the last run as both `start` and `end`. Then the tasks have
        no records to read.
        """
        self._last_end = end
        return super().partitions(start, end)


def _as_planned(begin: Position, stop: Position, plan: Plan, *, is_first: bool) -> tuple[Position, Position]:
    """Return the start and the end of a planned micro-batch, with the start offsets that `plan` has.

    Args:
        begin: the start that Spark passes. For the first micro-batch, the offsets in `plan` replace its
            offsets, because Spark has just requested the start again, and the start may have changed.
        stop: the end, which contains `plan`.
        is_first: whether the micro-batch is the query's first.

    Returns:
        The start, and the end. The plan in the end has the start offset of each partition that is not in the
        start.
    """
    if is_first:  # Spark has asked for the start again
        begin = replace(begin, offsets=plan.initial or plan.starts or begin.offsets)
    if plan.initial is not None:
        starts = begin.other_starts(stop, lambda _: plan.starts)
        stop = replace(stop, plan=replace(plan, starts=starts))
    return begin, stop


def _losses(begin: Position, stop: Position, now: Position, readable: Offsets) -> list[str]:
    """Describe the lost records between `begin` and `stop`, one text for each partition.

    `now` has the present topic ids, and `readable` the first readable offsets.
    """
    losses = []
    for tp, last in sorted(now.offsets.items()):
        first = begin.offsets.get(tp, 0)  # a new partition has nothing before it
        was_recreated = any(each.was_recreated(tp.topic, now.topic_ids) for each in (begin, stop))
        if begin.was_cut(now, tp):
            losses.append(f"{tp}: the log was cut, and offsets {last} to {first - 1} are gone")
        elif first > last or was_recreated:
            losses.append(
                f"{tp}: the topic was deleted and re-created; its records from offset {first} on are gone"
            )
        elif first < min(readable[tp], last):
            losses.append(gone(tp, first, min(readable[tp], last)))
    return losses


def _what_is_left(
    task: Task, left: Mapping[TopicPartition, tuple[Offset, Offset]], topic_ids: Mapping[str, str]
) -> Task:
    """Return the task without lost records. Even an empty task is kept, so that task numbers do not change.

    `left` has the start and the end of the readable offsets of each partition. `topic_ids` has the ids of the
    topics for the new task, by name.
    """
    nothing = (0, 0)
    ranges = [
        each.within(*left.get(TopicPartition(each.topic, each.partition), nothing)) for each in task.ranges
    ]
    ranges = [each for each in ranges if each.size > 0]
    return Task.of(ranges, topic_ids)
