"""What news from the brokers means for a task's ranges; a stand-in consumer brings the rare news."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as ClientPartition

from barnabas.errors import BarnabasError
from barnabas.spark.open_ranges import DataLossError, OpenRanges
from barnabas.spark.ranges import OffsetRange


class Record:
    """As much of a client's message as is looked at; with a code, an event."""

    def __init__(self, offset: int, partition: int = 0, code: int | None = None) -> None:
        self._offset, self._partition = offset, partition
        self._error = None if code is None else ClientError(code)

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def error(self) -> ClientError | None:
        return self._error


class StandIn:
    """A consumer that knows one topic and the ends of its logs."""

    def __init__(self, earliest: int = 0, latest: int = 100) -> None:
        self._ends = {-2: earliest, -1: latest}
        self.assigned: dict[int, int] = {}

    def list_topics(self, topic: str, timeout: float) -> Any:
        class Topic:
            error = None
            partitions = dict.fromkeys(range(2))

        class Metadata:
            topics = {topic: Topic}  # noqa: RUF012

        return Metadata

    def assign(self, partitions: list[ClientPartition]) -> None:
        self.assigned = {each.partition: each.offset for each in partitions}

    def incremental_assign(self, partitions: list[ClientPartition]) -> None:
        self.assigned |= {each.partition: each.offset for each in partitions}

    def incremental_unassign(self, partitions: list[ClientPartition]) -> None:
        for each in partitions:
            del self.assigned[each.partition]

    def offsets_for_times(self, partitions: list[ClientPartition], timeout: float) -> list[ClientPartition]:
        return [ClientPartition(each.topic, each.partition, self._ends[each.offset]) for each in partitions]


def opened(consumer: StandIn, *ranges: tuple[int, int], fail: bool = True) -> OpenRanges:
    planned = [OffsetRange("t", partition, start, end) for partition, (start, end) in enumerate(ranges)]
    open_ranges = OpenRanges(consumer, planned, fail, ask_timeout_s=1)
    open_ranges.assign()
    return open_ranges


def offsets(records: list[Any]) -> list[int]:
    return [record.offset() for record in records]


def test_a_range_ends_with_the_record_before_its_end() -> None:
    ranges = opened(StandIn(), (3, 6))
    assert offsets(ranges.take([Record(3), Record(4)])) == [3, 4]
    assert ranges.remaining() == 1
    assert offsets(ranges.take([Record(5)])) == [5]
    assert not ranges


def test_a_record_beyond_the_end_ends_a_range_whose_last_offsets_are_a_gap() -> None:
    ranges = opened(StandIn(), (3, 6))
    assert offsets(ranges.take([Record(3), Record(8), Record(9)])) == [3]
    assert not ranges


def test_the_end_of_the_log_ends_a_range_whose_last_offset_is_a_marker() -> None:
    ranges = opened(StandIn(latest=6), (3, 6))
    assert offsets(ranges.take([Record(3), Record(4), Record(6, code=ClientError._PARTITION_EOF)])) == [3, 4]
    assert not ranges


def test_the_end_of_a_replica_that_lags_is_waited_out() -> None:
    ranges = opened(StandIn(latest=6), (3, 6))
    ranges.take([Record(4, code=ClientError._PARTITION_EOF)])
    assert ranges.remaining() == 2


def test_a_finished_partition_is_fetched_no_more_and_its_late_records_are_dropped() -> None:
    consumer = StandIn()
    ranges = opened(consumer, (0, 2), (0, 4))
    ranges.take([Record(0), Record(1), Record(0, 1)])
    assert consumer.assigned == {1: 0}
    assert offsets(ranges.take([Record(2), Record(1, 1)])) == [1]


def test_an_offset_out_of_range_goes_on_at_the_start_of_the_log() -> None:
    consumer = StandIn(earliest=5)
    ranges = opened(consumer, (3, 9), fail=False)
    ranges.take([Record(3, code=ClientError._AUTO_OFFSET_RESET)])
    assert consumer.assigned == {0: 5}
    assert ranges.remaining() == 4


def test_a_log_made_anew_ends_the_range() -> None:
    ranges = opened(StandIn(earliest=0, latest=2), (7, 9), fail=False)
    ranges.take([Record(7, code=ClientError._AUTO_OFFSET_RESET)])
    assert not ranges


@pytest.mark.parametrize("code", [ClientError.UNKNOWN_TOPIC_OR_PART, ClientError._UNKNOWN_PARTITION])
def test_a_topic_deleted_meanwhile_is_data_loss(code: int) -> None:
    with pytest.raises(DataLossError, match="t-0 is gone; to go on with what is left, set the option fail"):
        opened(StandIn(), (0, 2)).take([Record(0, code=code)])


def test_a_refusal_fails_the_task_with_its_reason() -> None:
    with pytest.raises(BarnabasError, match="cannot read t-0: Broker: Topic authorization failed"):
        opened(StandIn(), (0, 2)).take([Record(0, code=ClientError.TOPIC_AUTHORIZATION_FAILED)])
