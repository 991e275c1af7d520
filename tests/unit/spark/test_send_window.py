"""The records that a bulk write passes to an idempotent producer at a time, and the partitions of rows
without keys.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from barnabas.spark.clients import producer_settings, transaction_settings
from barnabas.spark.librdkafka import MessageTable
from barnabas.spark.message_table import message_table
from barnabas.spark.send_window import SendWindow

BATCH = 1_000


def settings(**given: str) -> dict[str, Any]:
    named = {name.replace("_", "."): text for name, text in given.items()}
    return producer_settings({"batch.size": str(BATCH), **named})


class Topics:
    """Two partitions of each topic have a leader: 0 and 2."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, topic: str) -> list[int]:
        self.asked.append(topic)
        return [0, 2]


def rows(count: int, **columns: Any) -> MessageTable:
    """Return rows of ten bytes each. Only the lengths of the values are used."""
    return message_table(pa.RecordBatch.from_pydict({"value": [b"v" * 10] * count, **columns}))


def test_a_bulk_write_is_told_in_pieces_and_held_back() -> None:
    window = SendWindow(settings(batch_num_messages="500"), Topics())
    table = rows(400)
    pieces = window.split("t", table)
    assert np.concatenate(pieces)["payload"].tolist() == table["payload"].tolist()
    assert {len(piece) for piece in pieces} == {BATCH // 4 // 10}
    assert (window.bytes, window.records) == (1.5 * BATCH * 2, 1.5 * 500 * 2)


def test_rows_without_keys_fill_one_partition_after_the_other() -> None:
    window = SendWindow(settings(), Topics())
    table = rows(400)
    for number, piece in enumerate(window.split("t", table)):
        (partition,) = set(piece["partition"].tolist())
        if number == 0:
            first = partition
        assert partition == (first if number % 2 == 0 else 2 - first)
    counts = np.bincount(table["partition"], minlength=3)
    assert counts[1] == 0
    assert abs(counts[0] - counts[2]) <= BATCH // 4 // 10


def test_the_next_table_goes_on_with_the_next_partition() -> None:
    window = SendWindow(settings(), Topics())
    firsts = []
    for _ in range(4):
        table = rows(75)  # three pieces
        window.split("t", table)
        firsts.append(int(table["partition"][0]))
    assert firsts[0] == firsts[2] != firsts[1] == firsts[3]


def test_rows_that_have_a_place_keep_it() -> None:
    window = SendWindow(settings(), Topics())
    table = rows(
        200,
        key=[b"k", b"", None, None] * 50,
        partition=pa.array([None, None, 1, None] * 50, pa.int32()),
    )
    window.split("t", table)
    chosen = table["partition"].reshape(50, 4)
    assert set(chosen[:, 0].tolist()) == {-1}, "its key says where"
    assert set(chosen[:, 1].tolist()) == {-1}, "an empty key is one"
    assert set(chosen[:, 2].tolist()) == {1}
    assert set(chosen[:, 3].tolist()) == {0, 2}


@pytest.mark.parametrize(
    "given",
    [
        settings(enable_idempotence="false"),
        settings(acks="1"),  # which rules idempotence out
    ],
)
def test_a_producer_that_may_repeat_itself_is_not_held_back(given: dict[str, Any]) -> None:
    window = SendWindow(given, topics := Topics())
    table = rows(400)
    assert len(window.split("t", table)) == 1
    assert (window.bytes, topics.asked, set(table["partition"].tolist())) == (math.inf, [], {-1})


def test_a_transaction_is_held_back() -> None:
    window = SendWindow(transaction_settings({"batch.size": str(BATCH)}, "id"), Topics())
    table = rows(400)
    window.split("t", table)
    assert window.bytes < math.inf


def test_a_small_write_asks_for_nothing_and_waits_for_nothing() -> None:
    window = SendWindow(settings(), topics := Topics())
    for _ in range(100):
        table = rows(10)
        assert len(window.split("t", table)) == 1
    assert (window.bytes, topics.asked) == (math.inf, [])


def test_a_partitioner_that_places_rows_without_keys_is_left_to_it() -> None:
    window = SendWindow(settings(partitioner="murmur2"), Topics())
    table = rows(400)
    assert len(window.split("t", table)) > 1
    assert set(table["partition"].tolist()) == {-1}


def test_each_topic_adds_its_partitions_until_all_is_sent() -> None:
    window = SendWindow(settings(), topics := Topics())
    for topic in ("a", "b", "a"):
        table = rows(400)
        window.split(topic, table)
    assert (topics.asked, window.bytes) == (["a", "b"], 1.5 * BATCH * 4)
    window.close()
    assert window.bytes == math.inf
    table = rows(400)
    window.split("a", table)
    assert (topics.asked, window.bytes) == (["a", "b", "a"], 1.5 * BATCH * 2)


def test_a_topic_of_which_no_broker_knows_is_left_to_the_producer() -> None:
    def nobody(topic: str) -> list[int]:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    window = SendWindow(settings(), nobody)
    table = rows(400)
    window.split("t", table)
    assert (window.bytes, set(table["partition"].tolist())) == (math.inf, {-1})
