"""Writes exactly once: one Kafka transaction contains a task's rows, and the mark that they are written.

A task of a batch writes its rows in a transaction, and commits its mark (`barnabas.spark.sink_progress`) in
the same transaction. Spark, or a killed and restarted query, can try a task again. The task then finds the
mark and writes nothing. When all tasks have written, `close_batch` marks the whole batch.

The order is important. A task first takes over the transactional id. This aborts the open transaction of an
older attempt, and fences that attempt forever. Only then does the task read its mark. So no older attempt can
commit after the read, and of two attempts at the same time only one commits. Before the takeover, the task
checks that its batch follows the sink's last batch. So a query that must not write fences no other query.

Rows become visible task by task. The rows of a task must be the same in each attempt.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from confluent_kafka import KafkaException
from xxhash import xxh3_64_hexdigest

from barnabas.client.brokers import Brokers
from barnabas.spark.clients import Settings, kept, transaction_settings
from barnabas.spark.kafka_brokers import new_brokers
from barnabas.spark.options import WriteOptions
from barnabas.spark.record_sink import NO_TOPIC, DeliveryError, RecordSink, explain
from barnabas.spark.sink_progress import (
    BatchMark,
    ReplayError,
    SinkProgress,
    TaskMark,
    WriteId,
    check_goes_on,
    check_topic,
    identity,
    own_mark,
    task_metadata,
)
from barnabas.spark.task_content import TaskContent

__all__ = ["ReplayError", "TaskReport", "WriteId", "close_batch", "write_once"]

_logger = logging.getLogger(__name__)

#: Timeout of one call of librdkafka, in seconds. The call is then repeated.
_CALL_S = 10.0

#: Timeout of a request to a group's coordinator, including a failover, in seconds.
_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class TaskReport:
    """The part of a batch that a task has written, in this attempt or an earlier one.

    It has a summary of the written rows, but not the rows.
    """

    what: WriteId
    #: rows of this attempt
    rows: int
    #: `TaskContent` of the written rows, as text
    content: str
    #: ids of the topics that the rows were written to, by name
    topics: Mapping[str, str]


def write_once(options: WriteOptions, what: WriteId, batches: Iterator[pa.RecordBatch]) -> TaskReport:
    """Write the rows of one task, unless an earlier attempt has written them. Return a report of these rows.

    `what` identifies the sink, the batch and the task.

    Raises:
        ReplayError: the batch was written with other rows (only a warning if failOnChangedReplay is false),
            or does not follow the sink's last batch.
        DeliveryError: a broker rejected a record, another attempt of the task has taken over, or the
            transaction took too long.
    """
    batches = (batch for batch in batches if batch.num_rows)
    first = next(batches, None)
    progress = _progress(options, what.sink)
    if first is None:
        # There is nothing to write or to mark, but the mark must be read. An earlier attempt of this task may
        # have had rows. If another task has these rows now, it has no mark and would write them again, and
        # only this task can detect that. A task cannot know whether it is the first attempt, because Spark
        # counts attempts from 0 when a query is restarted.
        topic_id = progress.topic_id(options.topic) or "" if options.topic else ""
        marks = progress.tasks(what.name, None)
        mark = own_mark(what, options.topic, topic_id, marks, adopt=options.adopt_topic)
        if mark is not None and mark.batch >= what.batch:
            return _replay(what, mark, mark.content.empty(), {}, options)
        return TaskReport(what, 0, str(TaskContent()), {})
    batches = itertools.chain([first], batches)
    some_topic = options.topic or first.column("topic")[0].as_py()
    if some_topic is None:
        raise DeliveryError(NO_TOPIC)
    before = progress.batches()
    adopt = options.adopt_topic
    last = check_goes_on(
        what,
        options.topic,
        progress.topic_id(some_topic) or "",
        before,
        adopt=adopt,
        has_held_records=progress.has_held_records,
    )
    # whoever has dealt with dead letters may delete their topic, and create it again
    lasting = {name: mark for name, mark in before.items() if name != options.dead_letter_topic}
    topics = _Topics(progress, what, {} if adopt else lasting)
    topics.add(some_topic)
    with contextlib.closing(
        _Transaction(transaction_settings(options.client, what.name), what)
    ) as transaction:
        transaction.init_transactions(some_topic)
        marks = progress.tasks(what.name, some_topic)
        mark = own_mark(what, options.topic, topics.ids[some_topic], marks, adopt=adopt)
        if last != what.batch and (mark is None or mark.batch < what.batch):
            content = TaskContent()
            if options.topic is None:
                batches = topics.of(batches)
            transaction.write(content.of(batches, options.topic), options.topic)
            transaction.commit(some_topic, task_metadata(content, topics.ids))
            return TaskReport(what, content.rows, str(content), topics.ids)
    # Read to the end all the same: operators before the sink keep their state only then.
    now: TaskContent = mark.content.empty() if mark is not None else TaskContent()
    if options.topic is None:
        batches = topics.of(batches)
    collections.deque(now.of(batches, options.topic), maxlen=0)
    return _replay(what, mark, now, topics.ids, options)


def close_batch(options: WriteOptions, reports: Sequence[TaskReport]) -> None:
    """Mark a batch as written by all of its tasks.

    If the batch is marked already, as in a restarted query, only compare the rows in `reports` with the rows
    of the mark. `reports` has the report of each task of the batch. If it is empty, do nothing.

    Raises:
        ReplayError: the rows differ from the rows of the mark, or a later batch is marked. If
            failOnChangedReplay is false, this is only logged.
        DeliveryError: no task had rows, and the topic of the options does not exist and was not created.
    """
    if not reports:
        return
    what = reports[0].what
    progress = _progress(options, what.sink)
    topics = {name: topic_id for report in reports for name, topic_id in report.topics.items()}
    if options.topic and options.topic not in topics:  # no task had rows
        topic_id = progress.topic_id(options.topic, create=True)
        if topic_id is None:
            raise DeliveryError(f"topic {options.topic} does not exist: create it")
        topics[options.topic] = topic_id
    marks = {
        name: mark
        for name, mark in progress.batches().items()
        if options.topic is None or topics.get(name) == mark.topic_id
    }
    nothing = str(TaskContent())
    rows = sorted((each.what.partition, each.content) for each in reports if each.content != nothing)
    tasks = xxh3_64_hexdigest("\n".join(f"{number} {content}" for number, content in rows).encode())
    last = max(marks.values(), key=lambda mark: mark.batch, default=BatchMark(-1, "", ""))
    if last.batch > what.batch or (last.batch == what.batch and last.tasks != tasks):
        _refuse_changed(
            f"batch {what.batch} of sink {what.sink} is not as it was written (the last whole batch is "
            f"{last.batch}): its tasks have changed since, or another query runs on a copy of the checkpoint",
            options,
        )
    elif last.batch < what.batch and topics:
        progress.mark_batch(what.batch, tasks, topics)


class _Topics:
    """The topics that a task writes to. Each topic's id is read before the task's first row for it."""

    def __init__(self, progress: SinkProgress, what: WriteId, marks: Mapping[str, BatchMark]) -> None:
        self._progress = progress
        self._what = what
        self._marks = marks
        self.ids: dict[str, str] = {}

    def add(self, topic: str) -> None:
        """Add a topic with its id.

        Raises ReplayError if the sink has written to a deleted topic of this name.
        """
        if topic not in self.ids:
            # which the producer would have created as well; without a topic it fails, and says so
            found = self._progress.topic_id(topic) or self._progress.topic_id(topic, create=True) or ""
            check_topic(self._what, topic, found, self._marks.get(topic))
            self.ids[topic] = found

    def of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield `batches` unchanged. Before each batch, `add` the topics named in its column `topic`.

        Raises ReplayError, as `add` does.
        """
        for batch in batches:
            for topic in batch.column("topic").unique().to_pylist():
                if topic is not None:  # which the sink refuses
                    self.add(topic)
            yield batch


def _progress(options: WriteOptions, sink: str) -> SinkProgress:
    return SinkProgress(kept(_new_brokers, dict(options.client)), sink)


def _new_brokers(client: Settings) -> Brokers:
    return new_brokers(client, _TIMEOUT_S)


def _replay(
    what: WriteId, mark: TaskMark | None, now: TaskContent, topics: Mapping[str, str], options: WriteOptions
) -> TaskReport:
    """Compare a task's rows (`now`) with the rows that the task has written for the same batch earlier.

    `what` names the task and the batch. `topics` has the ids of the topics of the rows in `now`, by topic.
    `mark` is the last batch in which the task wrote rows, with a summary of these rows. If `mark` is None or
    of an earlier batch, the task wrote this batch without rows. The returned report has the summary of the
    rows that were written earlier.

    Raises ReplayError if `mark` is of a later batch. Also raises ReplayError if the rows differ, unless
    failOnChangedReplay is false: the difference is then only logged.
    """
    if mark is not None and mark.batch > what.batch:
        raise ReplayError(
            f"{what}: batch {mark.batch} is written already, and the batch numbers of a sink must increase; "
            "if the checkpoint is an old one or a copy, start the query with a new checkpoint"
        )
    if mark is None or mark.batch < what.batch:  # the batch is whole
        written: TaskContent = TaskContent()
        difference: str | None = f"was written without rows and now has {now.rows}"
    else:
        written = mark.content
        difference = written.difference(now)
        if difference is None and topics and mark.topics not in ("", identity(topics)):
            difference = "was written to a topic that was deleted and created again since"
    if difference is not None:
        _refuse_changed(
            f"{what} {difference}: the query's tasks have changed since, its rows are not the same each "
            "time, or another query runs on a copy of the checkpoint",
            options,
        )
    return TaskReport(what, now.rows, str(written), topics)


def _refuse_changed(changed: str, options: WriteOptions) -> None:
    if options.fail_on_changed_replay:
        raise ReplayError(
            f"{changed}; run it unchanged, or keep the written rows with the option "
            "barnabas.failOnChangedReplay=false"
        )
    _logger.warning("%s; keeping the written rows, because barnabas.failOnChangedReplay=false", changed)


class _Transaction:
    """The Kafka transaction of one attempt of a task, with its own producer."""

    def __init__(self, settings: Settings, what: WriteId) -> None:
        self._what = what
        self._sink = RecordSink(settings)
        self._timeout_s = int(settings["transaction.timeout.ms"]) / 1000
        self._producer = self._sink.producer
        self._open = False

    def init_transactions(self, topic: str) -> None:
        """Fence every older attempt and abort its open transaction. Wait if a transaction is committing.

        `topic` is any existing topic. Two requests for its metadata come first, only to save time: without
        them, librdkafka may look for the coordinator twice. Raises DeliveryError if a broker rejects the
        transactional id, or none answers in time.
        """
        with contextlib.suppress(KafkaException):
            for _ in range(2):
                # This only saves time. After the second answer librdkafka knows the broker's id. If it looks
                # for the coordinator before that, it may lose the answer, and retry half a second later.
                self._producer.find(topic, _CALL_S)
        self._insist(self._producer.init_transactions)

    def write(self, batches: Iterator[pa.RecordBatch], topic: str | None) -> None:
        """Begin the transaction and send the rows. Return when all are acknowledged.

        `topic` overrides the rows' column topic, if it is not None.
        """
        self._producer.begin_transaction()
        self._open = True
        for batch in batches:
            self._sink.send(batch, topic)
        self._sink.flush()

    def commit(self, mark_topic: str, metadata: str) -> None:
        """Commit the rows and the task's mark in one transaction.

        The mark is a committed offset for partition 0 of `mark_topic`: the number of the batch plus 1, with
        the metadata `metadata`. Raises DeliveryError if the commit fails.
        """
        mark = (self._what.name, mark_topic, self._what.batch + 1, metadata)
        self._insist(lambda timeout: self._producer.send_offset(*mark, timeout))
        self._insist(self._producer.commit_transaction)
        self._open = False

    def close(self) -> None:
        """Abort the transaction if it is open, and close the producer.

        Readers then need not wait for the transaction's timeout. The transaction of a fenced attempt is
        already aborted.
        """
        self._sink.purge()
        if self._open:
            with contextlib.suppress(KafkaException):
                self._producer.abort_transaction(_CALL_S)
        self._sink.close()

    def _insist(self, call: Callable[[float], object]) -> None:
        """Repeat `call` after retriable errors, up to the transaction's timeout.

        `call` gets its time limit in seconds. After a timeout of `call`, librdkafka continues the operation,
        and the next `call` waits for the end of the operation. Raises DeliveryError for other errors, and
        after the transaction's timeout.
        """
        end = time.monotonic() + self._timeout_s
        while True:
            try:
                call(_CALL_S)
                return
            except KafkaException as error:
                refusal = error.args[0]
                if not refusal.retriable() or time.monotonic() > end:
                    raise DeliveryError(f"cannot write {self._what}: {explain(refusal)}") from None
