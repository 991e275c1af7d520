"""A task reads its offset ranges into Arrow batches.

A range ends by position, not by a count of records: compaction and transaction markers leave gaps, so the
last offset of a range may never come. What ends it is a record at or after its end, or the news that the
log's end has been reached (librdkafka's partition EOF).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Message
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as ClientPartition

from barnabas.errors import BarnabasError
from barnabas.spark.clients import Settings, kept, new_consumer
from barnabas.spark.columns import to_record_batch
from barnabas.spark.option_values import EARLIEST, LATEST
from barnabas.spark.ranges import OffsetRange
from barnabas.types import Offset, TopicPartition

_logger = logging.getLogger(__name__)

#: Records in an Arrow batch at most; more gains nothing.
_BATCH_ROWS = 10_000

#: How long to wait for a batch to fill, in seconds. Only a range that ends in a gap has to wait it out, since
#: no more records are asked for than the range can hold.
_FILL_TIMEOUT_S = 0.1

#: After this long without news, in seconds, it is asked whether what is read is still there: librdkafka does
#: not say when a topic that is assigned does not exist.
_SILENCE_S = 5.0

#: How long to wait for an answer about a topic or an offset, in seconds.
_ASK_TIMEOUT_S = 10.0

_GONE = (
    ClientError.UNKNOWN_TOPIC_OR_PART,
    ClientError.UNKNOWN_TOPIC_ID,
    ClientError._UNKNOWN_TOPIC,
    ClientError._UNKNOWN_PARTITION,
)


class DataLossError(BarnabasError):
    """Records are gone that were to be read, and failOnDataLoss is true."""


class ReadTimeoutError(BarnabasError):
    """The brokers sent neither records nor the end of the log in time."""


def report_data_loss(what: str, *, fail: bool) -> None:
    """Raise or log, as failOnDataLoss says."""
    if fail:
        raise DataLossError(f"{what}; to go on with what is left, set the option failOnDataLoss=false")
    _logger.warning("%s; going on, since failOnDataLoss=false", what)


def read_ranges(
    ranges: list[OffsetRange],
    settings: Settings,
    schema: pa.Schema,
    *,
    fail_on_data_loss: bool,
    poll_timeout_s: float,
) -> Iterator[pa.RecordBatch]:
    """The records of `ranges` (each of another partition), in batches of `schema`.

    Raises:
        DataLossError: records are gone, and `fail_on_data_loss`.
        ReadTimeoutError: for `poll_timeout_s` seconds the brokers sent nothing.
        BarnabasError: a broker refuses, such as for want of authorisation.
    """
    consumer = kept(new_consumer, settings)
    open_ranges = _OpenRanges(consumer, ranges, fail_on_data_loss)
    try:
        last_news = last_asked = time.monotonic()
        while open_ranges:
            asked = min(_BATCH_ROWS, open_ranges.remaining())
            messages = consumer.consume(asked, timeout=_FILL_TIMEOUT_S)
            now = time.monotonic()
            if messages:
                last_news = last_asked = now
            elif now - last_news > poll_timeout_s:
                raise ReadTimeoutError(
                    f"option kafkaConsumer.pollTimeoutMs={poll_timeout_s * 1000:.0f}: no broker of "
                    f"{settings['bootstrap.servers']} sent records of {open_ranges} in this time; "
                    "are they running?"
                )
            elif now - last_asked > _SILENCE_S:
                last_asked = now
                open_ranges.close_what_is_gone()
            records = open_ranges.take(messages)
            if records:
                yield to_record_batch(records, schema)
    finally:
        consumer.unassign()


class _OpenRanges:
    """The ranges of a task that have not come to their end, and the consumer's assignment for them."""

    def __init__(self, consumer: Consumer, ranges: list[OffsetRange], fail_on_data_loss: bool) -> None:
        self._consumer = consumer
        self._fail_on_data_loss = fail_on_data_loss
        self._ends = {TopicPartition(each.topic, each.partition): each.end for each in ranges}
        self._positions = {TopicPartition(each.topic, each.partition): each.start for each in ranges}
        consumer.assign([ClientPartition(each.topic, each.partition, each.start) for each in ranges])

    def __bool__(self) -> bool:
        return bool(self._positions)

    def __str__(self) -> str:
        return ", ".join(map(str, self._positions))

    def remaining(self) -> int:
        """How many records can still come."""
        return sum(self._ends[tp] - position for tp, position in self._positions.items())

    def take(self, messages: list[Message]) -> list[Message]:
        """The records among `messages` that lie in the ranges; closes the ranges that have come to an end."""
        records = [message for message in messages if message.error() is None]
        last = {TopicPartition(record.topic(), record.partition()): record.offset() for record in records}
        if any(tp not in self._positions or offset >= self._ends[tp] for tp, offset in last.items()):
            records = [record for record in records if self._wants(record)]
        for tp, offset in last.items():
            self._advance(tp, offset + 1)
        if len(records) < len(messages):
            for message in messages:
                if message.error() is not None:
                    self._on_event(message, message.error())
        return records

    def close_what_is_gone(self) -> None:
        """Ask which partitions still exist; brokers that do not answer leave it open."""
        for topic in {tp.topic for tp in self._positions}:
            try:
                there = self._consumer.list_topics(topic, timeout=_ASK_TIMEOUT_S).topics[topic]
            except KafkaException:
                return
            if there.error is None or there.error.code() in _GONE:
                for tp in [tp for tp in self._positions if tp.topic == topic]:
                    if tp.partition not in there.partitions:
                        self._lost(f"{tp} is gone")
                        self._close(tp)

    def _wants(self, record: Message) -> bool:
        tp = TopicPartition(record.topic(), record.partition())
        return tp in self._positions and record.offset() < self._ends[tp]

    def _advance(self, tp: TopicPartition, position: Offset) -> None:
        if tp not in self._positions:
            return
        self._positions[tp] = position
        if position >= self._ends[tp]:
            self._close(tp)

    def _close(self, tp: TopicPartition) -> None:
        del self._positions[tp]
        self._consumer.incremental_unassign([ClientPartition(tp.topic, tp.partition)])

    def _on_event(self, message: Message, error: ClientError) -> None:
        tp = TopicPartition(message.topic(), message.partition())
        if tp not in self._positions:
            return
        if error.code() == ClientError._PARTITION_EOF:
            self._advance(tp, message.offset())
            if tp in self._positions and self._ask(tp, LATEST) < self._ends[tp]:
                self._lost(f"the log of {tp} ends at {message.offset()}, before {self._ends[tp]}")
                self._close(tp)
        elif error.code() == ClientError._AUTO_OFFSET_RESET:
            self._on_out_of_range(tp)
        elif error.code() in _GONE:
            self._lost(f"{tp} is gone")
            self._close(tp)
        else:
            raise BarnabasError(f"cannot read {tp}: {error.str()}")

    def _on_out_of_range(self, tp: TopicPartition) -> None:
        position, earliest = self._positions[tp], self._ask(tp, EARLIEST)
        self._lost(f"{tp} has no offset {position} any more; its log starts at {earliest}")
        if position < earliest < self._ends[tp]:
            self._consumer.incremental_unassign([ClientPartition(tp.topic, tp.partition)])
            self._consumer.incremental_assign([ClientPartition(tp.topic, tp.partition, earliest)])
            self._positions[tp] = earliest
        else:
            self._close(tp)

    def _ask(self, tp: TopicPartition, which_end: int) -> Offset:
        asked = [ClientPartition(tp.topic, tp.partition, which_end)]
        answer = self._consumer.offsets_for_times(asked, timeout=_ASK_TIMEOUT_S)[0]
        if answer.error is not None:
            raise BarnabasError(f"cannot look up offsets of {tp}: {answer.error.str()}")
        offset: Offset = answer.offset
        return offset

    def _lost(self, what: str) -> None:
        report_data_loss(what, fail=self._fail_on_data_loss)
