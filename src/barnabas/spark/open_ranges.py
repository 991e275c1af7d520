"""How far a task has come: its ranges that are still open, and what the brokers' news means for them.

A range ends by position, not by a count of records: compaction and transaction markers leave gaps, so the
last offset of a range may never come. What ends it is a record at or after its end, or the news that the
log's end has been reached (librdkafka's partition EOF).
"""

from __future__ import annotations

import logging

from confluent_kafka import Consumer, KafkaException, Message
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as ClientPartition

from barnabas.errors import BarnabasError
from barnabas.spark.option_values import EARLIEST, LATEST
from barnabas.spark.ranges import OffsetRange
from barnabas.types import Offset, TopicPartition

_logger = logging.getLogger(__name__)

_GONE = (
    ClientError.UNKNOWN_TOPIC_OR_PART,
    ClientError.UNKNOWN_TOPIC_ID,
    ClientError._UNKNOWN_TOPIC,
    ClientError._UNKNOWN_PARTITION,
)


class DataLossError(BarnabasError):
    """Records are gone that were to be read, and failOnDataLoss is true."""


def gone(tp: TopicPartition, start: Offset, end: Offset) -> str:
    """Names the records of `tp` that are gone, from `start` up to, not including, `end`."""
    return f"{tp}: offsets {start} to {end - 1} are gone"


def report_data_loss(what: str, *, fail: bool) -> None:
    """Raise or log, as failOnDataLoss says."""
    if fail:
        raise DataLossError(f"{what}; to go on with what is left, set the option failOnDataLoss=false")
    _logger.warning("%s; going on, since failOnDataLoss=false", what)


class OpenRanges:
    """The ranges of a task that have not come to their end, and the consumer's assignment for them."""

    def __init__(
        self, consumer: Consumer, ranges: list[OffsetRange], fail_on_data_loss: bool, ask_timeout_s: float
    ) -> None:
        self._consumer = consumer
        self._ask_timeout_s = ask_timeout_s
        self._assigned = False
        self._fail_on_data_loss = fail_on_data_loss
        self._ends = {TopicPartition(each.topic, each.partition): each.end for each in ranges}
        self._positions = {TopicPartition(each.topic, each.partition): each.start for each in ranges}

    def __bool__(self) -> bool:
        return bool(self._positions)

    def __str__(self) -> str:
        return ", ".join(map(str, self._positions))

    def assign(self) -> None:
        """Start fetching; to ask for the topics first spares a second where one is new to the consumer."""
        self.close_what_is_gone()
        self._assigned = True
        self._consumer.assign(
            [ClientPartition(tp.topic, tp.partition, start) for tp, start in self._positions.items()]
        )

    def remaining(self) -> int:
        """How many records can still come."""
        return sum(self._ends[tp] - position for tp, position in self._positions.items())

    def take(self, messages: list[Message]) -> list[Message]:
        """The records among `messages` that lie in the ranges; closes the ranges that have come to an end."""
        records = [message for message in messages if message.error() is None]
        # plain tuples, which equal TopicPartitions, for they are made once a record
        last = {(record.topic(), record.partition()): record.offset() for record in records}
        if any(place not in self._positions or offset >= self._ends[place] for place, offset in last.items()):
            records = [record for record in records if self._wants(record)]
        for place, offset in last.items():
            self._advance(TopicPartition(*place), offset + 1)
        if len(records) < len(messages):
            for message in messages:
                if message.error() is not None:
                    self._on_event(message, message.error())
        return records

    def close_what_is_gone(self) -> None:
        """Ask which partitions still exist; brokers that do not answer leave it open."""
        for topic in {tp.topic for tp in self._positions}:
            try:
                there = self._consumer.list_topics(topic, timeout=self._ask_timeout_s).topics[topic]
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
        if self._assigned:
            self._consumer.incremental_unassign([ClientPartition(tp.topic, tp.partition)])

    def _on_event(self, message: Message, error: ClientError) -> None:
        tp = TopicPartition(message.topic(), message.partition())
        if tp not in self._positions:
            return
        if error.code() == ClientError._PARTITION_EOF:
            self._advance(tp, message.offset())
            if tp in self._positions and self._ask(tp, LATEST) < self._ends[tp]:
                self._lost(gone(tp, message.offset(), self._ends[tp]))
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
        left = earliest if position < earliest < self._ends[tp] else self._ends[tp]
        self._lost(gone(tp, position, left))
        if left < self._ends[tp]:
            self._consumer.incremental_unassign([ClientPartition(tp.topic, tp.partition)])
            self._consumer.incremental_assign([ClientPartition(tp.topic, tp.partition, earliest)])
            self._positions[tp] = earliest
        else:
            self._close(tp)

    def _ask(self, tp: TopicPartition, which_end: int) -> Offset:
        asked = [ClientPartition(tp.topic, tp.partition, which_end)]
        answer = self._consumer.offsets_for_times(asked, timeout=self._ask_timeout_s)[0]
        if answer.error is not None:
            raise BarnabasError(f"cannot look up offsets of {tp}: {answer.error.str()}")
        offset: Offset = answer.offset
        return offset

    def _lost(self, what: str) -> None:
        report_data_loss(what, fail=self._fail_on_data_loss)
