"""Clients of a cluster that cannot be reached: each reports this in time, with the address."""

from __future__ import annotations

import logging

import pytest

from barnabas.base.types import TopicPartition
from barnabas.client import ClientError, Consumer, Producer

#: nothing listens there
NOWHERE = "127.0.0.1:1"


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize("setting", ["delivery_timeout_ms", "message_timeout_ms"])
def test_records_that_no_broker_takes_are_an_error_when_their_time_is_over(setting, caplog):
    with (
        pytest.raises(ClientError, match=r"delivered in time.*delivery.timeout.ms=1500.*127\.0\.0\.1:1"),
        Producer(NOWHERE, **{setting: 1500}) as producer,
    ):
        for _ in range(3):
            producer.send("t", "x")
    (warning,) = warnings(caplog)
    assert NOWHERE in warning and "connection refused" in warning and "1500 ms" in warning


def test_producer_whose_queue_is_full_blocks_no_longer_than_a_record_may_take():
    producer = Producer(NOWHERE, delivery_timeout_ms=1000, queue_buffering_max_messages=5)
    with pytest.raises(ClientError, match="delivered in time"):
        for _ in range(6):
            producer.send("t", "x")


def test_consumer_of_a_group_says_that_no_broker_answers(caplog):
    consumer = Consumer(NOWHERE, "t", group="g")
    while not warnings(caplog):
        consumer.poll(0.1)
    with pytest.raises(ClientError, match="only 0 of 1 records"):
        consumer.take(1, timeout=0.5)
    (warning,) = warnings(caplog)
    assert NOWHERE in warning and "connection refused" in warning
    consumer.close()


def test_questions_about_partitions_name_the_cluster_that_does_not_answer(monkeypatch):
    for patience in ("_ANSWER_S", "_LEADER_S"):
        monkeypatch.setattr(f"barnabas.client.consumer.{patience}", 0.5)
    consumer = Consumer(NOWHERE)
    partition = TopicPartition("t", 0)
    for ask in (
        lambda: consumer.partitions("t"),
        lambda: consumer.watermarks(partition),
        lambda: consumer.offsets_for_time([partition], 0),
    ):
        with pytest.raises(ClientError, match=r"no broker answers at 127\.0\.0\.1:1 \(connection refused"):
            ask()
    consumer.close()


def test_error_callback_of_the_caller_takes_precedence(caplog):
    seen = []
    producer = Producer(NOWHERE, delivery_timeout_ms=1000, error_cb=seen.append)
    producer.send("t", "x")
    with pytest.raises(ClientError):
        producer.flush()
    assert seen and not warnings(caplog)
