"""Reading as a stream: ``spark.readStream.format("barnabas")``.

One reader lives in the query's planner process from start to stop; its pickled copies in executors only
`read`. Spark's checkpoint holds the positions, so a replayed batch reads the same ranges again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from barnabas.base.types import Offset, TopicPartition
from barnabas.spark.admission import Admission
from barnabas.spark.batch_reader import read_task
from barnabas.spark.lookup import OffsetLookup
from barnabas.spark.open_ranges import gone, report_data_loss
from barnabas.spark.options import ReadOptions
from barnabas.spark.plan import Plan, unknown_plan
from barnabas.spark.position import Position, PositionJson
from barnabas.spark.ranges import OffsetRange, Offsets, OffsetsJson, Task, to_json
from barnabas.spark.streaming_api import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

#: The task of a batch without records: a sink learns of a batch, and marks it as written, by its tasks.
_NOTHING_TO_READ = Task([])


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A query's source. Partitions that appear later are read from their earliest offset."""

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
        """Made when first asked, since a reader that only reads in an executor asks nothing."""
        if self._lookup_ is None:
            self._lookup_ = OffsetLookup(self._options)
        return self._lookup_

    def initialOffset(self) -> PositionJson:
        """Where a new query starts; one that is restarted takes its checkpoint's word instead.

        Spark asks again when it plans the first micro-batch: the answer must stay the same.
        """
        if self._initial is None:
            start = self._lookup.resolve(self._options.starting, self._lookup.partitions())
            if self._target is not None and self._options.starting.moves:  # the end, when it was looked up
                start = {tp: min(offset, self._target.get(tp, offset)) for tp, offset in start.items()}
            self._initial = Position(start, self._topic_ids(start)).to_json()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark knows no limits side by side: any but ReadAllAvailable stands for all the options."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Freeze the end: what arrives later is for the next run."""
        self._target = self._ask_latest()

    def latestOffset(self, start: PositionJson, limit: ReadLimit) -> PositionJson:
        """The end of the next micro-batch. All before `start` is processed by now: it is committed here."""
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
        """Whether the last answer was that there is nothing to do, and nothing has changed since.

        Most triggers of most queries are such, so they must cost nothing that grows with the partitions. One
        that waits for more records is no such, since it looks at the clock.
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
        begin = self._readable_start(processed, latest, ids)
        # with a frozen end nothing more comes: to wait would be to wait for ever
        if self._target is None and self._admission.waits(begin, latest):
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = self._admission.end(begin, latest, most, lambda: self._lookup.sample(begin, latest))
        return self._next(start, processed, Position(end, ids))

    def _next(self, start: PositionJson, processed: Position, end: Position) -> PositionJson:
        """`end` with the plan of the micro-batch that leads there; `start` itself when none does.

        Spark compares positions as they are written: any other one would be a micro-batch to run.
        """
        if replace(processed, plan=None).to_json() == end.to_json():
            return start
        unknown = [tp for tp in end.offsets if not self._goes_on(processed, end, tp)]
        starts = self._lookup.earliest(unknown) if unknown else {}
        for tp in unknown:
            if self._was_cut(processed, end, tp):
                starts[tp] = end.offsets[tp]
        if (
            start == self._initial
        ):  # which no checkpoint holds, and which may be another when it is asked again
            starts = {**processed.offsets, **starts}
        return replace(end, plan=Plan.of(self._options, starts)).to_json()

    @staticmethod
    def _goes_on(start: Position, end: Position, tp: TopicPartition) -> bool:
        """Whether the records of `tp` up to `end` begin at the offset that `start` has."""
        return start.offsets.get(tp, end.offsets[tp] + 1) <= end.offsets[tp] and not start.is_made_anew(
            tp.topic, end.topic_ids
        )

    @staticmethod
    def _was_cut(start: Position, end: Position, tp: TopicPartition) -> bool:
        """Whether the log of `tp` is the same, and has lost its end, as after an unclean election."""
        return start.offsets.get(tp, 0) > end.offsets[tp] and start.is_the_same(tp.topic, end.topic_ids)

    def reportLatestOffset(self) -> OffsetsJson:
        """What the brokers held at the last look, for the query's progress report."""
        if self._latest is None:  # after a restart, when a batch was planned before it
            self._latest = self._ask_latest()
        if self._reported is None or self._reported[0] is not self._latest:
            self._reported = self._latest, to_json(self._latest)
        return self._reported[1]

    def partitions(self, start: PositionJson, end: PositionJson) -> list[InputPartition]:
        """The tasks of a micro-batch, which may be one that was planned before a restart."""
        if self._only_notes_start(start):  # a replay, since only `latestOffset` makes a batch
            return [_NOTHING_TO_READ]
        begin, stop = Position.from_json(start), Position.from_json(end)
        if start == self._initial and stop.plan is not None:  # as it was when the batch was planned
            begin = replace(begin, offsets={**begin.offsets, **stop.plan.starts})
        there = self._lookup.still_there(stop.offsets)
        # an id that cannot be asked for just now is what it was when the batch was planned
        ids = {**stop.topic_ids, **self._topic_ids(stop.offsets)}
        ends = {tp: offset for tp, offset in stop.offsets.items() if tp in there}
        readable = self._readable_start(begin, ends, ids)
        losses = [f"{tp}: the partition is gone" for tp in sorted({*begin.offsets, *stop.offsets} - there)]
        left: dict[TopicPartition, tuple[Offset, Offset]] = {}
        for tp, last in sorted(ends.items()):
            first = readable[tp]
            was = begin.offsets.get(tp, 0)  # a new partition has nothing before it
            if stop.is_made_anew(tp.topic, ids):  # the new topic is for the next micro-batch
                first = last
            if self._was_cut(begin, Position(ends, ids), tp):
                losses.append(f"{tp}: the log was cut, and offsets {last} to {was - 1} are gone")
            elif was > last or begin.is_made_anew(tp.topic, ids) or stop.is_made_anew(tp.topic, ids):
                losses.append(
                    f"{tp}: the topic was deleted and re-created; its records from offset {was} on are gone"
                )
            elif was < min(first, last):
                losses.append(gone(tp, was, min(first, last)))
            left[tp] = first, last
        if losses:
            report_data_loss("; ".join(losses), fail=self._options.fail_on_data_loss)
        tasks = [_what_is_left(task, left, ids) for task in self._planned(begin, stop, readable, ids)]
        return list(tasks) if any(task.ranges for task in tasks) else [_NOTHING_TO_READ]

    def _planned(
        self, begin: Position, stop: Position, readable: Offsets, ids_now: Mapping[str, str]
    ) -> list[Task]:
        """The tasks as they were planned first, whatever the logs have lost since."""
        known = {} if stop.plan is None else stop.plan.starts
        now = replace(stop, topic_ids=ids_now)

        def start(tp: TopicPartition) -> Offset:
            if tp in known:
                return known[tp]
            if stop.plan is None or self._goes_on(begin, now, tp):
                return begin.offsets.get(tp, 0)
            return readable.get(tp, 0)  # whoever planned it did not know where it begins (Spark 4.1)

        ranges = [OffsetRange(*tp, start(tp), end) for tp, end in sorted(stop.offsets.items())]
        return unknown_plan(self._options, ranges) if stop.plan is None else stop.plan.tasks(ranges)

    def _only_notes_start(self, start: PositionJson) -> bool:
        """Whether this is the first batch of a query that starts at the end of the logs, which moves.

        A checkpoint holds the ends of batches. So this one ends where it starts: a query that is killed
        before it has done any batch finds there where it started.
        """
        return start == self._initial and self._options.starting.moves and not self._start_is_noted

    def _readable_start(self, start: Position, end: Offsets, ids_now: Mapping[str, str]) -> Offsets:
        """Where each partition of `end` can be read from: `start`, or the earliest offset of what is left."""
        readable = {}
        unknown = []
        for tp, stop in end.items():
            begin = start.offsets.get(tp)
            anew = start.is_made_anew(tp.topic, ids_now)
            if begin == stop and not anew:  # with nothing to read, there is nothing to lose
                readable[tp] = stop
            elif begin is not None and begin > stop and start.is_the_same(tp.topic, ids_now):
                readable[tp] = stop  # its end was cut off
            else:
                unknown.append(tp)
        for tp, earliest in self._lookup.earliest(unknown).items():
            begin = start.offsets.get(tp, earliest)
            # a log that ends before the start is another log, too
            anew = begin > end[tp] or start.is_made_anew(tp.topic, ids_now)
            readable[tp] = earliest if begin < earliest or anew else begin
        return readable

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's records, in an executor's Python worker."""
        return read_task(self._options, partition)

    def commit(self, end: PositionJson) -> None:
        """Spark's word that all before `end` is processed."""
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
    """For Spark 4.1, which has no limits and does not tell where the next micro-batch begins.

    It begins where the last one ended. After a restart that is not known until the first micro-batch has been
    planned, which may be one without records.
    """

    #: of the micro-batch that was planned last
    _last_end: PositionJson | None = None
    #: at the first question, if it came before any for the start
    _first_latest: Offsets | None = None

    def initialOffset(self) -> PositionJson:
        """As `TopicStreamReader.initialOffset`; no later than the first end, as with a frozen end."""
        self._target = self._first_latest
        try:
            return super().initialOffset()
        finally:
            self._target = None

    def latestOffset(self) -> PositionJson:  # type: ignore[override]
        """The end of the next micro-batch."""
        start = self._last_end or self._initial
        if start is not None:
            self._last_end = super().latestOffset(start, ReadAllAvailable())
        else:
            self._latest = self._first_latest = latest = self._ask_latest()
            end = Position(latest, self._topic_ids(latest), Plan.of(self._options, {}))
            self._last_end = end.to_json()
        return self._last_end

    def partitions(self, start: PositionJson, end: PositionJson) -> list[InputPartition]:
        """As `TopicStreamReader.partitions`."""
        self._last_end = end
        return super().partitions(start, end)


def _what_is_left(
    task: Task, left: Mapping[TopicPartition, tuple[Offset, Offset]], topic_ids: Mapping[str, str]
) -> Task:
    """The task without what cannot be read any more: it may have nothing to do, and keeps its number."""
    nothing = (0, 0)
    ranges = [
        each.within(*left.get(TopicPartition(each.topic, each.partition), nothing)) for each in task.ranges
    ]
    ranges = [each for each in ranges if each.size > 0]
    return Task.of(ranges, topic_ids)
