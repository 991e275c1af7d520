"""Exactly once: a task's rows, and the word that they are written, are one Kafka transaction.

A task of a batch writes its rows in a transaction, and in the same transaction commits ``batch + 1`` as an
offset of a group of its own, with what it wrote (`TaskContent`) as metadata. A task that is tried again, be
it by Spark or by a query that was killed and restarted, finds the offset there and writes nothing. Group and
transactional id are both ``barnabas-spark-<sink>-<partition>`` (`WriteId.name`).

The order makes it sound: a task first takes the transactional id over, which aborts what an older attempt has
open and fences it for good, and only then looks for the offset. So no older attempt can commit after it has
looked, and two attempts at the same time cannot both commit.

Rows become visible task by task, and which rows a task holds must not change from one attempt to the next:
a task can tell by their number and their keys only.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaException

from barnabas.client.brokers import Brokers
from barnabas.client.connection import Connection
from barnabas.client.consumer_groups import Committed, committed
from barnabas.errors import BarnabasError, ErrorCode
from barnabas.spark.clients import Settings, kept, transaction_settings
from barnabas.spark.kafka_brokers import new_brokers
from barnabas.spark.options import WriteOptions
from barnabas.spark.record_sink import NO_TOPIC, DeliveryError, RecordSink, explain
from barnabas.spark.task_content import TaskContent
from barnabas.types import TopicPartition

_logger = logging.getLogger(__name__)

#: How long one call to the client may take before it is made again, in seconds.
_CALL_S = 10.0

#: How long a group's coordinator may take to be found and to answer, a failover included, in seconds.
_PATIENCE_S = 300.0

#: How often a group's offsets are asked for while a transaction may change one, and how long between.
_ATTEMPTS = 30
_RETRY_S = 0.5


class ReplayError(BarnabasError):
    """A batch that is written again is not the batch that was written."""


class WriteId(NamedTuple):
    """One task's part of one batch: what is written once."""

    sink: str
    batch: int
    partition: int

    @property
    def name(self) -> str:
        """The transactional id, and the group that holds how far it has come; the same for every batch."""
        return f"barnabas-spark-{self.sink}-{self.partition}"

    def __str__(self) -> str:
        return f"task {self.partition} of batch {self.batch} of sink {self.sink}"


class _Written(NamedTuple):
    """The last batch of which a task is written, and what it had."""

    batch: int
    content: TaskContent


def write_once(options: WriteOptions, what: WriteId, batches: Iterator[pa.RecordBatch]) -> int:
    """Write the rows of one task unless an attempt before has. Returns how many rows there are.

    Raises:
        ReplayError: the batch was written with other rows, or a later one was written.
        DeliveryError: a record was refused, another attempt of the task has taken over, or the transaction
            took longer than it may.
    """
    content = TaskContent()
    batches = content.of(batch for batch in batches if batch.num_rows)
    first = next(batches, None)
    if first is None:
        # Nothing to write, and nothing to remember. What was written is asked for all the same: where a task
        # has no rows now and had some, these may be in a task that has no mark yet, and would be there twice;
        # no other task can tell. Whether this is the first attempt of all, a task cannot know: Spark counts
        # attempts anew when a query is restarted.
        _check_replay(what, _read_progress(options.client, what, None), content, options)
        return 0
    batches = itertools.chain([first], batches)
    some_topic = options.topic or first.column("topic")[0].as_py()
    if some_topic is None:
        raise DeliveryError(NO_TOPIC)
    settings = transaction_settings(options.client, what.name)
    with contextlib.closing(_Transaction(settings, what)) as transaction:
        transaction.take_over(some_topic)
        written = _read_progress(options.client, what, some_topic)
        if written is None or written.batch < what.batch:
            transaction.write(batches, content, options.topic, some_topic)
            return content.rows
    # read to the end all the same: operators before the sink keep their state only then
    collections.deque(batches, maxlen=0)
    _check_replay(what, written, content, options)
    return content.rows


def _read_progress(client: dict[str, str], what: WriteId, some_topic: str | None) -> _Written | None:
    """What was committed last; the marker lies with the topic of whichever row came first.

    Without `some_topic`, one of those that are written to, a marker of a transaction that is not over is not
    waited for.
    """
    brokers = kept(_new_brokers, dict(client))
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            markers = brokers.ask_coordinator(
                what.name, lambda connection, _: _markers(connection, what.name, some_topic)
            )
            break
        except BarnabasError as error:
            is_unstable = getattr(error, "code", None) == ErrorCode.UNSTABLE_OFFSET_COMMIT
            if not is_unstable or not attempts_left:
                raise BarnabasError(f"cannot read the offsets of group {what.name}: {error}") from None
            time.sleep(_RETRY_S)
    last = max(markers.values(), key=lambda each: each.offset, default=None)
    if last is None or last.offset < 1:
        return None
    content = TaskContent.parse(last.metadata.rstrip("\0"))  # `BatchProducer.send_offset` ends it so
    if content is None:
        raise ReplayError(
            f"group {what.name} is in use by something else: its offsets are not batch numbers of a sink"
        )
    return _Written(last.offset - 1, content)


def _new_brokers(client: Settings) -> Brokers:
    return new_brokers(client, _PATIENCE_S)


def _markers(
    connection: Connection, group: str, some_topic: str | None
) -> Mapping[TopicPartition, Committed]:
    """The group's offsets. Raises KafkaError, also when an open transaction may change one.

    The transaction that had one may have ended already: Apache Kafka's coordinator before 4.0 puts an offset
    in place a moment after it has told of the end.
    """
    found = committed(connection, group, stable=some_topic is not None)
    if not found and some_topic is not None:
        # asked for all, brokers do not tell of one that waits where none was before
        found = committed(connection, group, only=[TopicPartition(some_topic, 0)], stable=True)
    return found


def _check_replay(what: WriteId, written: _Written | None, now: TaskContent, options: WriteOptions) -> None:
    """Raise when what is written is of a later batch; when it is of other rows, as told, or log."""
    if written is None or written.batch < what.batch:
        return
    if written.batch > what.batch:
        raise ReplayError(
            f"{what}: batch {written.batch} is written already, and a sink's batches must rise; "
            "if the checkpoint was set back, start the query with a new one"
        )
    difference = written.content.difference(now)
    if difference is None:
        return
    changed = (
        f"{what} {difference}: the query's tasks have changed since, or its rows are not the same each time"
    )
    if options.fail_on_changed_replay:
        raise ReplayError(
            f"{changed}; run it as it was, or keep what was written with the "
            "option barnabas.failOnChangedReplay=false"
        )
    _logger.warning("%s; keeping what was written, since barnabas.failOnChangedReplay=false", changed)


class _Transaction:
    """One attempt of a task, from taking over to commit or abort."""

    def __init__(self, settings: Settings, what: WriteId) -> None:
        self._what = what
        self._sink = RecordSink(settings)
        self._timeout_s = int(settings["transaction.timeout.ms"]) / 1000
        self._producer = self._sink.producer
        self._open = False

    def take_over(self, topic: str) -> None:
        """Fence every older attempt and abort what it has open; waits for what it is committing."""
        with contextlib.suppress(KafkaException):
            for _ in range(2):
                # Only to save time: the second answer comes from a broker that is known by its id. Asked for
                # the coordinator before, librdkafka may lose the answer, and ask again half a second later.
                self._producer.find(topic, _CALL_S)
        self._insist(self._producer.init_transactions)

    def write(
        self, batches: Iterator[pa.RecordBatch], content: TaskContent, topic: str | None, marker_topic: str
    ) -> None:
        """Send the rows and the marker, and commit both; `content` is what the rows have been by then."""
        self._producer.begin_transaction()
        self._open = True
        for batch in batches:
            self._sink.send(batch, topic)
        self._sink.flush()
        marker = (self._what.name, marker_topic, self._what.batch + 1, str(content))
        self._insist(lambda timeout: self._producer.send_offset(*marker, timeout))
        self._insist(self._producer.commit_transaction)
        self._open = False

    def close(self) -> None:
        """Give up what is not committed, so that readers need not wait for the timeout.

        One who is fenced has nothing open.
        """
        self._sink.purge()
        if self._open:
            with contextlib.suppress(KafkaException):
                self._producer.abort_transaction(_CALL_S)
        self._sink.close()

    def _insist(self, call: Callable[[float], object]) -> None:
        """Call until it is done: librdkafka goes on where a call that timed out has left off."""
        end = time.monotonic() + self._timeout_s
        while True:
            try:
                call(_CALL_S)
                return
            except KafkaException as error:
                refusal = error.args[0]
                if not refusal.retriable() or time.monotonic() > end:
                    raise DeliveryError(f"cannot write {self._what}: {explain(refusal)}") from None
