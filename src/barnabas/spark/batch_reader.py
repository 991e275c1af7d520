"""Reads topics in batch queries: ``spark.read.format("barnabas")``, from start offsets to end offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from barnabas.spark.arrow import arrow_schema
from barnabas.spark.clients import consumer_settings
from barnabas.spark.fetch import read_ranges
from barnabas.spark.lookup import OffsetLookup
from barnabas.spark.open_ranges import gone, report_data_loss
from barnabas.spark.option_values import invalid_option
from barnabas.spark.options import ReadOptions
from barnabas.spark.plan import Plan
from barnabas.spark.pushdown import PushedFilters, wanted_by
from barnabas.spark.ranges import OffsetRange, Offsets, Task
from barnabas.spark.worker_heap import count_use


class TopicReader(DataSourceReader):
    """Plans the tasks of a batch query, and reads their records.

    Spark plans in a separate process and pickles the reader for the tasks. So the reader keeps no
    connections.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._wanted = PushedFilters()

    def partitions(self) -> list[InputPartition]:
        """Return the tasks for the records between the start and the end offsets."""
        with closing(OffsetLookup(self._options)) as lookup:
            partitions = lookup.partitions()
            start = lookup.resolve(self._options.starting, partitions)
            end = lookup.resolve(self._options.ending, partitions)
            self._check(start, end, lookup.earliest(partitions), lookup.latest(partitions))
            topic_ids = lookup.topic_ids({tp.topic for tp in partitions})
            wanted = [tp for tp in partitions if self._wanted.includes(tp)]
            if self._wanted.not_before is not None:
                first = lookup.at_time(self._wanted.not_before, wanted)
                start |= {tp: max(start[tp], offset) for tp, offset in first.items()}
        clamp = self._wanted.clamp
        ranges = [OffsetRange(tp.topic, tp.partition, clamp(start[tp]), clamp(end[tp])) for tp in wanted]
        # Spark makes one task of its own when there is none
        tasks = plan_for(self._options, ranges)
        return [Task.of(each.ranges, topic_ids) for each in tasks] or [Task([])]

    def _check(self, start: Offsets, end: Offsets, earliest: Offsets, latest: Offsets) -> None:
        """Move start and end offsets that are outside the logs into the logs, in place.

        `earliest` and `latest` are the offsets at which the logs begin and end.

        Raises ConfigError if the options put the start of a partition after its end. For missing records it
        raises DataLossError, or only logs a warning if failOnDataLoss is false.
        """
        losses = []
        for tp in start:
            if end[tp] > latest[tp]:
                losses.append(gone(tp, latest[tp], end[tp]))
                end[tp] = latest[tp]
            left = min(earliest[tp], end[tp])
            if start[tp] < left:
                losses.append(gone(tp, start[tp], left))
                start[tp] = left
            if start[tp] > end[tp]:
                ending = self._options.ending
                is_chosen = ending.by_partition is not None or (ending.is_timestamp and end[tp] < latest[tp])
                if is_chosen or self._options.starting.is_timestamp:
                    option = self._options.starting.option
                    raise invalid_option(
                        option, start[tp], f"the read of {tp} ends before that, at {end[tp]}"
                    )
                losses.append(f"{tp}: the log ends at {end[tp]}, before {start[tp]}")
                start[tp] = end[tp]
        if losses:
            report_data_loss("; ".join(losses), fail=self._options.fail_on_data_loss)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task, in an executor's Python worker."""
        return read_task(self._options, partition)


class FilteredTopicReader(TopicReader):
    """Reads only the partitions and offsets that can have records for the query's filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Use the filters to reduce the ranges, and return all of them, so that Spark applies them again."""
        self._wanted = wanted_by(filters)
        return filters


def plan_for(options: ReadOptions, ranges: list[OffsetRange]) -> list[Task]:
    """Divide the ranges of a batch query into tasks, by the options."""
    return Plan.of(options, {}).tasks(ranges)


def read_task(options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the records of one task of a batch or micro-batch, as Arrow batches."""
    assert isinstance(partition, Task)
    count_use()
    return read_ranges(
        partition.ranges,
        consumer_settings(options.client),
        arrow_schema(options.columns),
        topic_ids=partition.topic_ids,
        fail_on_data_loss=options.fail_on_data_loss,
        poll_timeout_s=options.poll_timeout_s,
    )
