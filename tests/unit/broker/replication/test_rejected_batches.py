"""Batches that arrived before their partition: which of them are remembered, and for how long."""

from __future__ import annotations

import pytest

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.replication.rejected_batches import RejectedBatches, header_of
from barnabas.broker.storage import Origin
from barnabas.broker.storage.producers import Producers
from barnabas.kafka.records import Record, encode_batch
from barnabas.kafka.records.batch import parse_header

CODE = ErrorCode.NOT_LEADER_OR_FOLLOWER
TOPIC = "t"


def batch(sequence, producer=7, epoch=0):
    records = [Record(None, b"v", timestamp=1)]
    return encode_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def header(sequence, producer=7, epoch=0):
    return parse_header(batch(sequence, producer, epoch))


class Time:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def early(time):
    return RejectedBatches(time)


def refuses(producers, header):
    try:
        producers.check(header, Origin.CLIENT)
    except KafkaError as error:
        assert error.code == CODE
        return True
    return False


def handed_over(early, index=0):
    producers = Producers()
    early.move_to(TOPIC, index, producers)
    return producers


def test_what_follows_a_batch_that_came_too_early_waits_for_it(early):
    early.note(TOPIC, 0, header(0), CODE)
    early.note(TOPIC, 0, header(1), CODE)
    producers = handed_over(early)
    assert refuses(producers, header(1))
    assert not refuses(producers, header(0))
    producers.update(header(0), 0)
    assert not refuses(producers, header(1))
    assert len(early) == 0


def test_another_producer_epoch_or_partition_does_not_wait(early):
    early.note(TOPIC, 0, header(0), CODE)
    assert not refuses(handed_over(early, 1), header(1))
    producers = handed_over(early)
    assert not refuses(producers, header(1, producer=8))
    assert not refuses(producers, header(1, epoch=1))


def test_a_batch_before_the_one_that_was_refused_does_not_wait(early):
    """Another broker had stored it, and its answer was lost with its leader."""
    early.note(TOPIC, 0, header(3), CODE)
    producers = handed_over(early)
    assert not refuses(producers, header(2))
    producers.update(header(2), 0)
    assert not refuses(producers, header(3))


def test_a_producer_that_has_given_its_batch_up_is_not_held_to_it(early, time):
    early.note(TOPIC, 0, header(0), CODE)
    time.now += 31
    assert not refuses(handed_over(early), header(1))
    early.note(TOPIC, 0, header(0), CODE)
    time.now += 31
    early.note(TOPIC, 0, header(1), CODE)
    producers = handed_over(early)
    assert not refuses(producers, header(1))
    assert refuses(producers, header(2))


def test_a_batch_that_a_log_has_already_changes_nothing(early):
    """It was in flight for a long time, while its producer sent it to another broker."""
    producers = Producers()
    producers.update(header(0), 0)
    producers.update(header(1), 1)
    early.note(TOPIC, 0, header(1), CODE)
    early.move_to(TOPIC, 0, producers)
    assert not refuses(producers, header(2))


def test_a_thousand_are_remembered_and_the_oldest_partition_is_forgotten_first(early):
    for index in range(1002):
        early.note(TOPIC, index, header(0), CODE)
    for producer in range(500):
        early.note(TOPIC, 2000, header(0, producer), CODE)
    assert len(early) == 1000
    assert not refuses(handed_over(early, 501), header(1))
    assert refuses(handed_over(early, 502), header(1))


@pytest.mark.parametrize(
    "records",
    [
        b"",
        b"\0" * 61,
        batch(0)[:-1] + b"?",
        encode_batch([Record(None, b"v", timestamp=1)]),
    ],
)
def test_what_no_log_would_take_and_batches_of_other_producers_are_not_remembered(records):
    assert header_of(records) is None
