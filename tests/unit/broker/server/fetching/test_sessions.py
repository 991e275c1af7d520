"""Fetch sessions (KIP-227): epochs, changes, eviction."""

import random

import pytest
from simulation.clocks import ManualClock

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.server.fetching.sessions import MIN_EVICTION_S, FetchSessions, FetchTarget
from barnabas.kafka.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)


def request(session_id=0, epoch=0, partitions=(), forgotten=()):
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchTopic(topic="t", partitions=[FetchPartition(partition=p, fetch_offset=o)])
            for p, o in partitions
        ],
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=list(forgotten))],
    )


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def sessions(clock):
    return FetchSessions(2, clock, random.Random(1))


def refused(code, call):
    with pytest.raises(KafkaError) as error:
        call()
    assert error.value.code is code


def offsets(session):
    return {target.index: target.offset for target in session.targets.values()}


def test_a_request_without_a_session_gets_none(sessions):
    assert sessions.resolve(request(epoch=-1, partitions=[(0, 0)]), False) is None
    assert len(sessions) == 0


def test_a_session_keeps_what_is_not_named_again(sessions):
    session = sessions.resolve(request(partitions=[(0, 10), (1, 20), (2, 30)]), False)
    again = sessions.resolve(request(session.session_id, 1, [(1, 25), (3, 0)], forgotten=[2]), False)
    assert again is session
    assert offsets(session) == {0: 10, 1: 25, 3: 0}


def test_a_partition_that_a_request_adds_and_forgets_is_forgotten(sessions):
    session = sessions.resolve(request(partitions=[(0, 10), (1, 20)]), False)
    sessions.resolve(request(session.session_id, 1, [(0, 12), (1, 25)], forgotten=[1]), False)
    assert offsets(session) == {0: 12}


def test_epochs_must_follow_one_another(sessions):
    session = sessions.resolve(request(partitions=[(0, 0)]), False)
    refused(
        ErrorCode.INVALID_FETCH_SESSION_EPOCH, lambda: sessions.resolve(request(session.session_id, 2), False)
    )
    sessions.resolve(request(session.session_id, 1), False)
    refused(
        ErrorCode.INVALID_FETCH_SESSION_EPOCH, lambda: sessions.resolve(request(session.session_id, 1), False)
    )
    sessions.resolve(request(session.session_id, 2), False)


def test_the_epoch_wraps_to_one(sessions):
    session = sessions.resolve(request(partitions=[(0, 0)]), False)
    session.epoch = 2**31 - 1
    sessions.resolve(request(session.session_id, 2**31 - 1), False)
    assert session.epoch == 1


def test_an_unknown_session_is_not_found(sessions):
    refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, lambda: sessions.resolve(request(12345, 1), False))


def test_a_session_does_not_change_between_names_and_ids(sessions):
    session = sessions.resolve(request(partitions=[(0, 0)]), False)
    refused(
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, lambda: sessions.resolve(request(session.session_id, 1), True)
    )


def test_topics_are_told_apart_by_their_ids(sessions):
    def by_id(session_id, epoch, offsets, forgotten=()):
        return FetchRequest(
            session_id=session_id,
            session_epoch=epoch,
            topics=[
                FetchTopic(topic_id=topic, partitions=[FetchPartition(partition=0, fetch_offset=offset)])
                for topic, offset in offsets.items()
            ],
            forgotten_topics_data=[ForgottenTopic(topic_id=topic, partitions=[0]) for topic in forgotten],
        )

    one, two, three = (bytes([number]) * 16 for number in (1, 2, 3))
    session = sessions.resolve(by_id(0, 0, {one: 10, two: 20}), True)
    again = sessions.resolve(by_id(session.session_id, 1, {two: 25, three: 30}, forgotten=[one]), True)
    assert again is session
    assert {key: target.offset for (key, _), target in session.targets.items()} == {two: 25, three: 30}


def test_the_final_epoch_closes_the_session(sessions):
    session = sessions.resolve(request(partitions=[(0, 0)]), False)
    assert sessions.resolve(request(session.session_id, -1), False) is None
    assert len(sessions) == 0


def test_a_new_session_takes_the_place_of_the_clients_old_one(sessions):
    first = sessions.resolve(request(partitions=[(0, 0)]), False)
    second = sessions.resolve(request(first.session_id, 0, [(0, 0)]), False)
    assert second is not first
    assert len(sessions) == 1


def test_sessions_are_bounded_and_only_silent_ones_make_room(sessions, clock):
    silent = sessions.resolve(request(partitions=[(0, 0)]), False)
    busy = sessions.resolve(request(partitions=[(0, 0)]), False)
    assert sessions.resolve(request(partitions=[(0, 0)]), False) is None
    clock.advance(MIN_EVICTION_S * 1000)
    sessions.resolve(request(busy.session_id, 1), False)
    assert sessions.resolve(request(partitions=[(0, 0)]), False) is None
    clock.advance(1)
    third = sessions.resolve(request(partitions=[(0, 0)]), False)
    assert third is not None
    assert len(sessions) == 2
    refused(
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND, lambda: sessions.resolve(request(silent.session_id, 1), False)
    )
    sessions.resolve(request(busy.session_id, 2), False)


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_a_clock_that_is_set_evicts_sessions_neither_earlier_nor_later(sessions, clock, jump_ms):
    for _ in range(2):
        sessions.resolve(request(partitions=[(0, 0)]), False)
    clock.ahead_ms = jump_ms
    assert sessions.resolve(request(partitions=[(0, 0)]), False) is None
    clock.advance(MIN_EVICTION_S * 1000 + 1)
    assert sessions.resolve(request(partitions=[(0, 0)]), False) is not None


def test_no_slots_means_no_sessions(clock):
    assert FetchSessions(0, clock, random.Random(1)).resolve(request(partitions=[(0, 0)]), False) is None


def test_a_partition_is_news_when_it_has_records_an_error_or_new_bounds():
    target = FetchTarget("t", FetchPartition(partition=0))
    assert target.has_changed(PartitionData(high_watermark=5, log_start_offset=0, records=b""))
    assert not target.has_changed(PartitionData(high_watermark=5, log_start_offset=0, records=b""))
    assert target.has_changed(PartitionData(high_watermark=5, log_start_offset=0, records=[b"batch"]))
    assert target.has_changed(PartitionData(high_watermark=6, log_start_offset=0, records=b""))
    assert target.has_changed(PartitionData(high_watermark=6, log_start_offset=2, records=b""))
    assert target.has_changed(PartitionData(error_code=3, high_watermark=-1, records=b""))
    assert target.has_changed(PartitionData(error_code=3, high_watermark=-1, records=b""))
    assert target.has_changed(PartitionData(high_watermark=6, log_start_offset=2, records=b""))


def test_a_large_change_is_made_in_steps_and_counts_as_it_comes(sessions):
    session = sessions.resolve(request(partitions=[(0, 0)]), False)
    large = request(session.session_id, 1, [(number, 5) for number in range(1000)])
    steps = sessions.advance(sessions.find(large, False), large)
    next(steps)
    next(steps)
    assert 1 < len(session.targets) < 1000
    assert sessions.partitions == len(session.targets)
    refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH, lambda: sessions.find(large, False))
    list(steps)
    assert sessions.partitions == len(session.targets) == 1000
    assert set(offsets(session).values()) == {5}


def test_a_session_that_goes_between_two_steps_takes_no_more_partitions(sessions):
    session = sessions.resolve(request(partitions=[(0, 0)]), False)
    large = request(session.session_id, 1, [(number, 5) for number in range(1000)])
    steps = sessions.advance(session, large)
    next(steps)
    sessions.drop(session)
    before = len(session.targets)
    refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, lambda: next(steps))
    assert len(session.targets) == before
    assert sessions.partitions == 0
