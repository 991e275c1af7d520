"""Requests that are repeated, because their error in librdkafka may pass."""

from __future__ import annotations

import confluent_kafka
import pytest

from barnabas.client import asking

GONE = confluent_kafka.KafkaError._DESTROY_BROKER
UNKNOWN = confluent_kafka.KafkaError._UNKNOWN_PARTITION
TIMED_OUT = confluent_kafka.KafkaError._TIMED_OUT


@pytest.fixture
def pauses(monkeypatch):
    pauses = []
    monkeypatch.setattr(asking.time, "sleep", pauses.append)
    return pauses


def failing(*codes):
    """Return a question that fails with each of the codes in turn, and then succeeds."""
    left = list(codes)

    def question():
        if left:
            raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(left.pop(0)))
        return "answer"

    return question


def test_partition_that_the_asked_broker_does_not_know_yet_is_asked_for_again(pauses):
    assert asking.ask(failing(UNKNOWN, GONE, UNKNOWN)) == "answer"
    assert pauses == [0.5, 0, 0.5]


def test_partition_that_does_not_exist_is_an_error_after_five_attempts(pauses):
    with pytest.raises(confluent_kafka.KafkaException) as error:
        asking.ask(failing(*[UNKNOWN] * 5))
    assert error.value.args[0].code() == UNKNOWN
    assert len(pauses) == 4


def test_other_error_is_not_repeated(pauses):
    with pytest.raises(confluent_kafka.KafkaException):
        asking.ask(failing(TIMED_OUT))
    assert pauses == []
