"""Appending to topics: ``df.write`` and ``df.writeStream``, by Arrow.

At least once by default, as Spark's own Kafka connector: a task or a micro-batch that is tried again writes
again what it had already written (the producer itself repeats nothing, it is idempotent). Exactly once with
``barnabas.delivery=exactly-once``: see `barnabas.spark.exactly_once`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas.spark.clients import forget, kept, producer_settings
from barnabas.spark.exactly_once import WriteId, write_once
from barnabas.spark.options import WriteOptions
from barnabas.spark.record_sink import RecordSink
from barnabas.spark.worker_heap import count_use


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver."""

    records: int


class TopicWriter(DataSourceArrowWriter):
    """Writes a batch query's result."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        # without a name of its own a write is told from all others, so that only its own tasks' retries skip
        self._sink = options.sink or uuid.uuid4().hex
        self._batch = options.batch or 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """One task: returns when the brokers have acknowledged every record."""
        return _write(self._options, iterator, self._sink, self._batch)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes a micro-batch; each batch has a new one, so it keeps no state."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """One task of one micro-batch: returns when the brokers have acknowledged every record."""
        task = TaskContext.get()
        # the query's id and the batch's number live in the checkpoint: a restarted query has them again
        sink = task.getLocalProperty("sql.streaming.queryId")
        batch = int(task.getLocalProperty("streaming.sql.batchId"))
        return _write(self._options, iterator, sink, batch)


def _write(options: WriteOptions, batches: Iterator[pa.RecordBatch], sink: str, batch: int) -> Written:
    count_use()
    if not options.exactly_once:
        return Written(write_batches(options, batches))
    return Written(write_once(options, WriteId(sink, batch, TaskContext.get().partitionId()), batches))


def write_batches(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> int:
    """Send every row as a record and wait until all are acknowledged. Returns how many.

    Raises:
        DeliveryError: a record was refused, or not acknowledged within ``kafka.delivery.timeout.ms``.
    """
    sink = kept(RecordSink, producer_settings(options.client))
    try:
        records = sum(sink.send(batch, options.topic) for batch in batches)
        sink.flush()
    except BaseException:
        forget(sink)
        sink.purge()
        sink.close()
        raise
    return records
