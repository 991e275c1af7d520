"""Reading as a stream: ``spark.readStream.format("barnabas")``.

One reader lives in the query's planner process from start to stop; its pickled copies in executors only
`read`. Spark's checkpoint holds the positions, so a replayed batch reads the same ranges again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from barnabas.spark.admission import Admission
from barnabas.spark.batch_reader import plan_for, read_task
from barnabas.spark.lookup import OffsetLookup
from barnabas.spark.open_ranges import gone, report_data_loss
from barnabas.spark.options import ReadOptions
from barnabas.spark.position import Position, PositionJson
from barnabas.spark.ranges import OffsetRange, Offsets, OffsetsJson, to_json


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A query's source. Partitions that appear later are read from their earliest offset."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._lookup_: OffsetLookup | None = None
        self._initial: PositionJson | None = None
        self._start_is_noted = False
        self._latest: Offsets | None = None
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
        processed = Position.from_json(start)
        if self._options.commit_offsets:
            self._lookup.commit(processed.offsets)
        self._latest = latest = self._ask_latest() if self._target is None else self._target
        if self._only_notes_start(start):
            self._start_is_noted = True
            return start
        # an id that cannot be asked for just now is as it was
        ids = {**processed.topic_ids, **self._topic_ids(latest)}
        if isinstance(limit, ReadAllAvailable):
            return Position(latest, ids).to_json()
        begin = self._readable_start(processed, latest, ids)
        # with a frozen end nothing more comes: to wait would be to wait for ever
        if self._target is None and self._admission.waits(begin, latest):
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = self._admission.end(begin, latest, most, lambda: self._lookup.sample(begin, latest))
        return Position(end, ids).to_json()

    def reportLatestOffset(self) -> OffsetsJson:
        """What the brokers held at the last look, for the query's progress report."""
        if self._latest is None:  # after a restart, when a batch was planned before it
            self._latest = self._ask_latest()
        return to_json(self._latest)

    def partitions(self, start: PositionJson, end: PositionJson) -> list[InputPartition]:
        """The tasks of a micro-batch, which may be one that was planned before a restart."""
        if self._only_notes_start(start):  # a replay, since only `latestOffset` makes a batch
            return []
        begin, stop = Position.from_json(start), Position.from_json(end)
        ids = self._topic_ids(stop.offsets)
        there = self._lookup.still_there(stop.offsets)
        ends = {tp: offset for tp, offset in stop.offsets.items() if tp in there}
        readable = self._readable_start(begin, ends, ids)
        losses = [f"{tp}: the partition is gone" for tp in sorted({*begin.offsets, *stop.offsets} - there)]
        ranges = []
        for tp, last in sorted(ends.items()):
            first = readable[tp]
            was = begin.offsets.get(tp, 0)  # a new partition has nothing before it
            if stop.is_made_anew(tp.topic, ids):  # the new topic is for the next micro-batch
                first = last
            if was > last or begin.is_made_anew(tp.topic, ids) or stop.is_made_anew(tp.topic, ids):
                losses.append(f"{tp}: the topic was made anew, and what it had from offset {was} on is gone")
            elif was < min(first, last):
                losses.append(gone(tp, was, min(first, last)))
            ranges.append(OffsetRange(tp.topic, tp.partition, first, last))
        if losses:
            report_data_loss("; ".join(losses), fail=self._options.fail_on_data_loss)
        return list(plan_for(self._options, ranges))

    def _only_notes_start(self, start: PositionJson) -> bool:
        """Whether this is the first batch of a query that starts at the end of the logs, which moves.

        A checkpoint holds the ends of batches. So this one ends where it starts: a query that is killed
        before it has done any batch finds there where it started.
        """
        return start == self._initial and self._options.starting.moves and not self._start_is_noted

    def _readable_start(self, start: Position, end: Offsets, ids_now: Mapping[str, str]) -> Offsets:
        """Where each partition of `end` can be read from: `start`, or the earliest offset of what is left."""
        earliest = self._lookup.earliest(end)
        readable = {}
        for tp, stop in end.items():
            begin = start.offsets.get(tp, earliest[tp])
            # a log that ends before the start is another log, too
            anew = begin > stop or start.is_made_anew(tp.topic, ids_now)
            readable[tp] = earliest[tp] if begin < earliest[tp] or anew else begin
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
