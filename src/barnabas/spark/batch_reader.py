"""Reading in batch: ``spark.read.format("barnabas")``, from one set of offsets to another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from barnabas.spark.arrow import arrow_schema
from barnabas.spark.clients import consumer_settings
from barnabas.spark.fetch import read_ranges
from barnabas.spark.lookup import OffsetLookup
from barnabas.spark.open_ranges import report_data_loss
from barnabas.spark.option_values import refuse
from barnabas.spark.options import ReadOptions
from barnabas.spark.ranges import OffsetRange, Offsets, Task, plan_tasks
from barnabas.types import TopicPartition


class TopicReader(DataSourceReader):
    """Plans in a process of its own and is pickled from there to the tasks: it holds plain settings only."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """The tasks for what lies between the two bounds now."""
        with closing(OffsetLookup(self._options)) as lookup:
            partitions = lookup.partitions()
            start = lookup.resolve(self._options.starting, partitions)
            end = lookup.resolve(self._options.ending, partitions)
            self._check(start, end, lookup.earliest(partitions), lookup.latest(partitions))
        ranges = [OffsetRange(tp.topic, tp.partition, start[tp], end[tp]) for tp in partitions]
        # Spark makes one task of its own when there is none
        return list(plan_tasks(ranges, self._options.min_partitions)) or [Task([])]

    def _check(self, start: Offsets, end: Offsets, earliest: Offsets, latest: Offsets) -> None:
        """Fit the bounds to what the logs hold, in place."""
        for tp in start:
            if start[tp] < earliest[tp]:
                self._lost(tp, f"offsets {start[tp]} to {earliest[tp]} are gone", start, earliest[tp])
            if end[tp] > latest[tp]:
                self._lost(tp, f"the log ends at {latest[tp]}, before {end[tp]}", end, latest[tp])
            if start[tp] > end[tp]:
                option = self._options.starting.option
                if self._options.ending.by_partition is None and not self._options.starting.is_timestamp:
                    self._lost(tp, f"the log ends at {end[tp]}, before {start[tp]}", start, end[tp])
                else:
                    raise refuse(option, start[tp], f"{tp} is to end before that, at {end[tp]}")

    def _lost(self, tp: TopicPartition, what: str, bound: Offsets, nearest: int) -> None:
        report_data_loss(f"{tp}: {what}", fail=self._options.fail_on_data_loss)
        bound[tp] = nearest

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's records, in an executor's Python worker."""
        return read_task(self._options, partition)


def read_task(options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """What a task of a batch or of a micro-batch does."""
    assert isinstance(partition, Task)
    return read_ranges(
        partition.ranges,
        consumer_settings(options.client),
        arrow_schema(options.include_headers),
        fail_on_data_loss=options.fail_on_data_loss,
        poll_timeout_s=options.poll_timeout_s,
    )
