"""A group's lag in time, for each of its partitions. Only changed partitions cause requests."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from barnabas.base.types import TopicPartition
from barnabas.console.record_ages import Ages
from barnabas.kafka.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.kafka.records import Record, parse_header
from barnabas.kafka.records.batch import HEADER_SIZE, with_timestamp_type
from barnabas.kafka.records.builder import encode_batch
from barnabas.kafka.records.compacted import with_records, without_records
from barnabas.kafka.records.record import record_spans

PARTITIONS, NOW_S, PRODUCED_S = 6, 1_000_000.0, 999_910


class Kafka:
    """One leader. As a broker does, it sends a batch above the partition's limit only as the first in an
    answer.
    """

    def __init__(self, batch: bytes) -> None:
        self.asked = 0
        self._batch = batch
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


def produced(size: int) -> bytes:
    return encode_batch([Record(None, bytes(size), PRODUCED_S * 1000, ())])


def appended() -> bytes:
    """Return a batch with LogAppendTime, whose producer's clock was an hour late."""
    batch = encode_batch([Record(None, b"", (PRODUCED_S - 3600) * 1000, ())])
    return with_timestamp_type(parse_header(batch), batch, PRODUCED_S * 1000)


def compacted() -> bytes:
    """Return a batch with a tombstone that compaction may drop in a day."""
    batch = produced(0)
    payload = batch[HEADER_SIZE:]
    return with_records(
        parse_header(batch), payload, list(record_spans(payload, 1)), (PRODUCED_S + 86400) * 1000
    )


def behind_an_empty_one() -> bytes:
    """Return a batch that compaction has emptied, and the next one."""
    emptied = without_records(parse_header(encode_batch([Record(None, b"", 1, ())])))
    return emptied + encode_batch([Record(None, b"", PRODUCED_S * 1000, ())], base_offset=1)


@pytest.mark.parametrize("batch", [appended, compacted, behind_an_empty_one], ids=lambda each: each.__name__)
def test_the_age_counts_from_the_time_of_a_record_whatever_the_base_timestamp_is(batch):
    kafka, committed = Kafka(batch()), {TopicPartition("t", 0): 0}
    assert Ages().seconds_behind(kafka, kafka.metadata, committed, NOW_S) == dict.fromkeys(committed, 90.0)


@pytest.mark.parametrize("size", [10, 1_000_000], ids=["small batches", "large batches"])
def test_every_partition_of_a_group_has_its_lag_in_time(size):
    kafka, ages = Kafka(produced(size)), Ages()
    committed = {TopicPartition("t", n): 0 for n in range(PARTITIONS)}
    assert ages.seconds_behind(kafka, kafka.metadata, committed, NOW_S) == dict.fromkeys(committed, 90.0)
    asked = kafka.asked
    assert ages.seconds_behind(kafka, kafka.metadata, committed, NOW_S + 10) == dict.fromkeys(
        committed, 100.0
    )
    assert kafka.asked == asked, "a record's time does not change: it is read once"


def test_a_read_that_takes_long_leaves_the_rest_to_the_next_look(monkeypatch):
    from barnabas.console import record_ages

    kafka, ages, clock = Kafka(produced(1_000_000)), Ages(), iter(range(1000))
    monkeypatch.setattr(record_ages.time, "monotonic", lambda: next(clock))
    committed = {TopicPartition("t", n): 0 for n in range(PARTITIONS)}
    first = ages.seconds_behind(kafka, kafka.metadata, committed, NOW_S)
    assert 0 < len(first) < PARTITIONS
    for _ in range(PARTITIONS):
        found = ages.seconds_behind(kafka, kafka.metadata, committed, NOW_S)
    assert len(found) == PARTITIONS
