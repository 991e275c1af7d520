"""A group's lag in time, for each of its partitions. Only changed partitions cause requests."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from barnabas.base.types import TopicPartition
from barnabas.console.record_ages import Ages
from barnabas.kafka.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.kafka.records import Record
from barnabas.kafka.records.builder import encode_batch

PARTITIONS, NOW_S, PRODUCED_S = 6, 1_000_000.0, 999_910


class Kafka:
    """One leader. As a broker does, it sends a batch above the partition's limit only as the first in an
    answer.
    """

    def __init__(self, size: int) -> None:
        self.asked = 0
        self._batch = encode_batch([Record(None, bytes(size), PRODUCED_S * 1000, ())])
        self.metadata = SimpleNamespace(
            topics=[
                SimpleNamespace(
                    name="t",
                    topic_id=bytes(16),
                    error_code=0,
                    partitions=[
                        SimpleNamespace(partition_index=n, leader_id=1, error_code=0)
                        for n in range(PARTITIONS)
                    ],
                )
            ]
        )

    def ask(self, broker, request):
        self.asked += 1
        answered, left = [], request.max_bytes
        for wanted in request.topics[0].partitions:
            fits = len(self._batch) <= min(wanted.partition_max_bytes, left)
            data = self._batch if fits or not any(p.records for p in answered) else b""
            left -= len(data)
            answered.append(
                PartitionData(
                    partition_index=wanted.partition, high_watermark=1, last_stable_offset=1, records=data
                )
            )
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=answered)])


@pytest.mark.parametrize("size", [10, 1_000_000], ids=["small batches", "large batches"])
def test_every_partition_of_a_group_has_its_lag_in_time(size):
    kafka, ages = Kafka(size), Ages()
    committed = {TopicPartition("t", n): 0 for n in range(PARTITIONS)}
    assert ages.seconds_behind(kafka, kafka.metadata, committed, NOW_S) == dict.fromkeys(committed, 90.0)
    asked = kafka.asked
    assert ages.seconds_behind(kafka, kafka.metadata, committed, NOW_S + 10) == dict.fromkeys(
        committed, 100.0
    )
    assert kafka.asked == asked, "a record's time does not change: it is read once"


def test_a_read_that_takes_long_leaves_the_rest_to_the_next_look(monkeypatch):
    from barnabas.console import record_ages

    kafka, ages, clock = Kafka(1_000_000), Ages(), iter(range(1000))
    monkeypatch.setattr(record_ages.time, "monotonic", lambda: next(clock))
    committed = {TopicPartition("t", n): 0 for n in range(PARTITIONS)}
    first = ages.seconds_behind(kafka, kafka.metadata, committed, NOW_S)
    assert 0 < len(first) < PARTITIONS
    for _ in range(PARTITIONS):
        found = ages.seconds_behind(kafka, kafka.metadata, committed, NOW_S)
    assert len(found) == PARTITIONS
