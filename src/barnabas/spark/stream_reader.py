"""Reading as a stream: ``spark.readStream.format("barnabas")``.

One reader lives in the query's planner process from start to stop; its pickled copies in executors only
`read`. Spark's checkpoint holds the offsets, so a replayed batch reads the same ranges again.
"""

from __future__ import annotations

from collections.abc import Iterator

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
from barnabas.spark.ranges import OffsetRange, Offsets, OffsetsJson, from_json, to_json
from barnabas.types import TopicPartition


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A query's source. Partitions that appear later are read from their earliest offset."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._lookup_: OffsetLookup | None = None
        self._latest: Offsets | None = None
        self._target: Offsets | None = None
        self._admission = Admission(options)
        self._topic_ids: dict[str, str] = {}
        self._made_anew: tuple[Offsets, set[str]] = ({}, set())

    @property
    def _lookup(self) -> OffsetLookup:
        """Made when first asked, since a reader that only reads in an executor asks nothing."""
        if self._lookup_ is None:
            self._lookup_ = OffsetLookup(self._options)
        return self._lookup_

    def initialOffset(self) -> OffsetsJson:
        """Where a new query starts; one that is restarted takes its checkpoint's word instead."""
        return to_json(self._lookup.resolve(self._options.starting, self._lookup.partitions()))

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

    def latestOffset(self, start: OffsetsJson, limit: ReadLimit) -> OffsetsJson:
        """The end of the next micro-batch. All before `start` is processed by now: it is committed here."""
        processed = from_json(start)
        if self._options.commit_offsets:
            self._lookup.commit(processed)
        self._notice_made_anew(processed)
        self._latest = latest = self._ask_latest() if self._target is None else self._target
        if isinstance(limit, ReadAllAvailable):
            return to_json(latest)
        begin = self._readable_start(processed, latest)
        # with a frozen end nothing more comes: to wait would be to wait for ever
        if self._target is None and self._admission.waits(begin, latest):
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return to_json(self._admission.end(begin, latest, most, lambda: self._lookup.sample(begin, latest)))

    def reportLatestOffset(self) -> OffsetsJson | None:
        """What the brokers held at the last look, for the query's progress report."""
        return None if self._latest is None else to_json(self._latest)

    def partitions(self, start: OffsetsJson, end: OffsetsJson) -> list[InputPartition]:
        """The tasks of a micro-batch."""
        begin, stop = from_json(start), from_json(end)
        readable = self._readable_start(begin, stop)
        losses = [f"{tp}: the partition is gone" for tp in sorted(set(begin) - set(stop))]
        for tp in sorted(stop):
            was = begin.get(tp, readable[tp])
            if was > stop[tp] or (tp in begin and self._is_made_anew(tp, begin)):
                losses.append(f"{tp}: the topic was made anew, and what it had from offset {was} on is gone")
            elif was < readable[tp]:
                losses.append(gone(tp, was, min(readable[tp], stop[tp])))
        if losses:
            report_data_loss("; ".join(losses), fail=self._options.fail_on_data_loss)
        ranges = [OffsetRange(tp.topic, tp.partition, readable[tp], stop[tp]) for tp in sorted(stop)]
        return list(plan_for(self._options, ranges))

    def _readable_start(self, start: Offsets, end: Offsets) -> Offsets:
        """Where each partition of `end` can be read from: `start`, or the earliest offset of what is left."""
        earliest = self._lookup.earliest(end)
        readable = {}
        for tp, stop in end.items():
            begin = start.get(tp, earliest[tp])
            # a log that ends before the start is another log, too
            anew = begin > stop or self._is_made_anew(tp, start)
            readable[tp] = earliest[tp] if begin < earliest[tp] or anew else begin
        return readable

    def _notice_made_anew(self, start: Offsets) -> None:
        """Compare the topics' ids with those seen before; `start` is where the next micro-batch begins."""
        ids = self._lookup.topic_ids({tp.topic for tp in start})
        changed = {topic for topic, new in ids.items() if self._topic_ids.get(topic, new) != new}
        self._topic_ids |= ids
        since, topics = self._made_anew
        if changed or since != start:  # once the query has moved on, its offsets are of the new topic
            self._made_anew = (start, changed | topics if since == start else changed)

    def _is_made_anew(self, tp: TopicPartition, start: Offsets) -> bool:
        """Whether `start` holds offsets of a former topic of the same name."""
        since, topics = self._made_anew
        return tp.topic in topics and start == since

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's records, in an executor's Python worker."""
        return read_task(self._options, partition)

    def commit(self, end: OffsetsJson) -> None:
        """Spark's word that all before `end` is processed."""
        if self._options.commit_offsets:
            self._lookup.commit(from_json(end))

    def stop(self) -> None:
        if self._lookup_ is not None:
            self._lookup_.close()
            self._lookup_ = None

    def _ask_latest(self) -> Offsets:
        # what is gone since the start is data loss, which `partitions` judges, and no mistake in the options
        return self._lookup.latest(self._lookup.partitions(must_exist=False))
