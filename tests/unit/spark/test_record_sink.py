"""The limit of the records in a sink's producer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from barnabas.spark import record_sink
from barnabas.spark.clients import producer_settings
from barnabas.spark.librdkafka import Failed, MessageTable
from barnabas.spark.record_sink import DeliveryError, RecordSink


class SlowProducer:
    """A producer that keeps its records, and delivers the first one at each wait."""

    def __init__(self) -> None:
        self.held: deque[int] = deque()
        self.max_bytes = self.max_records = 0

    def produce(self, topic: str, messages: MessageTable) -> None:
        self.held.extend(map(int, messages["len"]))
        self.max_bytes = max(self.max_bytes, sum(self.held))
        self.max_records = max(self.max_records, len(self.held))

    def poll(self, milliseconds: int) -> None:
        if milliseconds:
            self.held.popleft()

    def find(self, topic: str, seconds: float) -> list[int]:
        return [0, 1]

    def flush(self) -> None:
        self.held.clear()

    def __len__(self) -> int:
        return len(self.held)


def test_the_cause_of_a_failure_is_named_and_not_the_records_that_were_dropped_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Fenced(SlowProducer):
        def __init__(self, on_failure: Callable[[Failed], None]) -> None:
            super().__init__()
            self.on_failure = on_failure
            self.is_fatal = True

        def poll(self, milliseconds: int) -> None:
            self.on_failure(Failed(KafkaError(KafkaError._PURGE_QUEUE), "t", 0, None, b"v"))
            if self.is_fatal:
                raise KafkaException(KafkaError(KafkaError._FENCED))

    monkeypatch.setattr(record_sink, "new_producer", lambda settings, on_failure: Fenced(on_failure))
    for is_fatal, named in (
        (True, "another attempt of this task has taken over"),
        (False, "Purged in queue"),
    ):
        writing = sink(messages="1")
        writing._producer.is_fatal = is_fatal  # type: ignore[attr-defined]
        with pytest.raises(DeliveryError, match=named):
            for _ in range(2):
                writing.send(values(5), "t")


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> SlowProducer:
    made = SlowProducer()
    monkeypatch.setattr(record_sink, "new_producer", lambda settings, on_failure: made)
    return made


def sink(**room: str) -> RecordSink:
    named: dict[str, Any] = {f"queue.buffering.max.{name}": value for name, value in room.items()}
    return RecordSink(producer_settings(named))


def values(size: int, count: int = 1) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": [b"v" * size] * count})


def test_large_records_after_many_small_ones_are_held_back_by_their_own_size(producer: SlowProducer) -> None:
    writing = sink(kbytes="64")
    for _ in range(100):
        writing.send(values(10, 100), "t")
        producer.held.clear()  # acknowledged
    for _ in range(50):
        writing.send(values(10_000), "t")
    assert 50_000 < producer.max_bytes <= 64 * 1024 + 10_000


def test_small_records_after_large_ones_are_held_back_by_their_number(producer: SlowProducer) -> None:
    writing = sink(kbytes="64", messages="50")
    for _ in range(10):
        writing.send(values(10_000), "t")
    for _ in range(200):
        writing.send(values(1), "t")
    assert producer.max_records == 50


def test_a_number_of_0_is_no_limit(producer: SlowProducer) -> None:
    writing = sink(messages="0")
    for _ in range(3):
        writing.send(values(1), "t")
    assert producer.max_records == 3


def test_a_bulk_write_is_held_back_to_what_the_partitions_take(producer: SlowProducer) -> None:
    writing = sink()
    for _ in range(10):
        writing.send(values(1_000, 10_000), "t")
    assert 2_000_000 < producer.max_bytes <= 3_000_000 + 250_000
    writing.flush()
    producer.max_bytes = 0
    for _ in range(10):
        writing.send(values(1_000, 400), "t")
    assert producer.max_bytes == 4_000_000, "small tables are sent at once"
