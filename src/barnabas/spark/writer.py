"""Appends rows to topics with Arrow: ``df.write`` and ``df.writeStream``.

The default is at-least-once delivery, as in Spark's own Kafka connector: a repeated task or micro-batch
writes its rows again. The producer is idempotent, so its own retries write no record twice.
`barnabas.spark.exactly_once` implements ``barnabas.delivery=exactly-once``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas.spark.clients import forget, kept, producer_settings
from barnabas.spark.dead_letters import check_rejected
from barnabas.spark.exactly_once import TaskReport, WriteId, close_batch, write_once
from barnabas.spark.options import WriteOptions
from barnabas.spark.record_sink import RecordSink
from barnabas.spark.worker_heap import count_use


@dataclass
class Written(WriterCommitMessage):
    """The result of a task, which Spark sends to the driver."""

    records: int
    #: the number of these records that went to the dead-letter topic
    rejected: int = 0
    #: report of an exactly-once task; otherwise None
    report: TaskReport | None = None


class TopicWriter(DataSourceArrowWriter):
    """Writes the result of a batch query."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        # a write without a name gets one of its own, so that only its own tasks' retries skip
        self._sink = options.sink or uuid.uuid4().hex
        self._batch = options.batch or 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task, in an executor.

        Return when the brokers have acknowledged every record.
        """
        task = TaskContext.get().partitionId()
        return _write(self._options, iterator, WriteId(self._sink, self._batch, task))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Mark an exactly-once batch as written, after all tasks. Without barnabas.sinkId, there is no mark.

        `messages` has the result of each task.

        Raises:
            TooManyRejectedError: the tasks together have too many rejected rows.
            ReplayError: the marked batch has other rows, or a later batch is marked, and failOnChangedReplay
                is true.
            DeliveryError: no task had rows, and the topic of the options does not exist and was not created.
        """
        _check_rejected(self._options, messages)
        if self._options.sink is not None:
            _close(self._options, messages)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes one micro-batch. Spark makes a new object for each micro-batch, so the class keeps no state."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task of a micro-batch.

        Return when the brokers have acknowledged every record.
        """
        task = TaskContext.get()
        # the query's id and the batch's number live in the checkpoint: a restarted query has them again
        sink = task.getLocalProperty("sql.streaming.queryId")
        batch = int(task.getLocalProperty("streaming.sql.batchId"))
        return _write(self._options, iterator, WriteId(sink, batch, task.partitionId(), is_stream=True))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Check the number of rejected rows, and mark an exactly-once micro-batch as written.

        Spark calls this before it commits the micro-batch to the checkpoint. `messages` has the result of
        each task. An at-least-once micro-batch gets no mark.

        Raises:
            TooManyRejectedError: the tasks together have too many rejected rows.
            ReplayError: the marked micro-batch has other rows, or a later one is marked, and
                failOnChangedReplay is true.
            DeliveryError: no task had rows, and the topic of the options does not exist and was not created.
        """
        _check_rejected(self._options, messages)
        _close(self._options, messages)


def _write(options: WriteOptions, batches: Iterator[pa.RecordBatch], what: WriteId) -> Written:
    count_use()
    rejected = _RejectedRows(options)
    batches = rejected.of(batches)
    if not options.exactly_once:
        return Written(write_batches(options, batches), rejected.rows)
    report = write_once(options, what, batches)
    return Written(report.rows, rejected.rows, report)


class _RejectedRows:
    """Counts the rows of a task that go to the dead-letter topic."""

    def __init__(self, options: WriteOptions) -> None:
        self._topic = options.dead_letter_topic
        self._limit = options.dead_letter_limit
        self.rows = 0

    def of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield `batches`, and count their rejected rows. Raise TooManyRejectedError above the limit.

        Nothing is counted if the rows have no column `topic`, or the options have no dead-letter topic.
        """
        for batch in batches:
            if self._topic is not None and "topic" in batch.schema.names:
                self.rows += pc.sum(pc.equal(batch.column("topic"), self._topic)).as_py() or 0
                check_rejected(self.rows, self._limit, self._topic)
            yield batch


def _check_rejected(options: WriteOptions, messages: Iterable[WriterCommitMessage | None]) -> None:
    if options.dead_letter_topic is not None:
        rejected = sum(each.rejected for each in messages if isinstance(each, Written))
        check_rejected(rejected, options.dead_letter_limit, options.dead_letter_topic)


def _close(options: WriteOptions, messages: Iterable[WriterCommitMessage | None]) -> None:
    if options.exactly_once:
        reports = [each.report for each in messages if isinstance(each, Written)]
        close_batch(options, [report for report in reports if report is not None])


def write_batches(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> int:
    """Send every row as a record, and wait until all are acknowledged. Return their number.

    Raises:
        DeliveryError: a broker rejected a record, or did not acknowledge it within
            ``kafka.delivery.timeout.ms``.
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
