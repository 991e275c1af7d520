"""The results of `Consumer` for messages of librdkafka."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import KafkaError as ConfluentError

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.client import Consumer


class Message:
    def __init__(self, offset, error=None):
        self._offset, self._error = offset, error

    def error(self):
        return None if self._error is None else ConfluentError(self._error)

    def topic(self):
        return "t"

    def partition(self):
        return 0

    def offset(self):
        return self._offset

    def value(self):
        return b"v"

    def key(self):
        return None

    def headers(self):
        return None

    def timestamp(self):
        return 1, 0


def test_records_before_an_error_are_returned_before_it_is_raised():
    consumer = Consumer("127.0.0.1:1")
    end = ConfluentError._PARTITION_EOF
    gone = ConfluentError.UNKNOWN_TOPIC_OR_PART
    messages = [Message(0), Message(1, end), Message(1), Message(2, gone), Message(2)]
    offsets = lambda: [record.offset for record in consumer._take_records(messages, 10)]  # noqa: E731
    assert offsets() == [0, 1]
    with pytest.raises(KafkaError) as caught:
        offsets()
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert offsets() == [2]
    assert messages == []
    consumer.close()


def test_no_more_records_are_returned_than_asked_for():
    consumer = Consumer("127.0.0.1:1")
    messages = [Message(number) for number in range(5)]
    assert len(consumer._take_records(messages, 3)) == 3
    assert [record.offset for record in consumer._take_records(messages, 3)] == [3, 4]
    consumer.close()


def test_a_consumer_that_ctrl_c_has_interrupted_can_be_closed():
    """The interrupt happens just after a read has begun and before the `with` block,
    so nothing ends that read.
    """

    def interrupted():
        consumer = Consumer("127.0.0.1:1")
        begun = consumer._keeper.reading()
        next(begun.gen)
        consumer.close()

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "it waits for itself"
