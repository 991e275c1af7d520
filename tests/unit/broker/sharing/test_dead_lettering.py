"""The records that a share group gives up, until their dead letters are written (KIP-1191)."""

from __future__ import annotations

import asyncio
import logging

import pytest
from simulation.virtual_time import run_virtual
from tests.unit.broker.sharing.conftest import GROUP, KEY, LED, Queue

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.coordinator.share_state.persister import ShareState, StateBatch
from barnabas.broker.metadata import ClusterImage
from barnabas.broker.sharing.in_flight import ARCHIVED, ARCHIVING, REJECT, RELEASE
from barnabas.broker.sharing.sessions import Member

DLQ = {"errors.deadletterqueue.topic.name": "dlq.jobs"}


def scenario(test):
    """Run a test in virtual time."""

    def run(*args, **kwargs):
        run_virtual(test(*args, **kwargs))

    run.__name__ = test.__name__
    return run


def with_log(test):
    """Run a test in virtual time, with the log that it writes."""

    def run(caplog):
        caplog.set_level(logging.WARNING)
        run_virtual(test(caplog))

    run.__name__ = test.__name__
    return run


@scenario
async def test_a_rejected_record_is_stored_as_given_up_then_dead_lettered_then_archived():
    queue = Queue(**DLQ)
    queue.append(3)
    await queue.acquire()
    queue.letters.may_answer.clear()
    await queue.acknowledge(1, 1, REJECT)  # answered before the dead letter is written, as in Kafka
    await queue.settle()
    assert queue.persister.writes == [(0, 0, [(1, 1, ARCHIVING, 1)])]
    assert queue.letters.written == []
    queue.letters.may_answer.set()
    await queue.settle()
    assert queue.letters.written == [(1, 1, 1, True)]
    assert queue.persister.writes[1:] == [(0, 1, [(1, 1, ARCHIVED, 1)])]


@scenario
async def test_a_record_that_reaches_the_limit_of_deliveries_is_dead_lettered():
    queue = Queue(**DLQ, **{"share.delivery.count.limit": "2"})
    queue.append(1)
    for _ in range(2):
        await queue.acquire()
        await queue.acknowledge(0, 0, RELEASE)
    await queue.settle()
    assert queue.letters.written == [(0, 0, 2, False)]


@scenario
async def test_a_record_whose_last_lock_ends_is_dead_lettered():
    queue = Queue(**DLQ, **{"share.delivery.count.limit": "2", "share.record.lock.duration.ms": "20000"})
    queue.append(1)
    await queue.acquire()
    await asyncio.sleep(21)
    await queue.acquire()
    await asyncio.sleep(21)
    assert queue.letters.written == [(0, 0, 2, False)]
    assert queue.persister.writes[-1] == (1, 0, [])


@scenario
async def test_a_group_without_a_queue_archives_at_once():
    queue = Queue()
    queue.append(1)
    await queue.acquire()
    await queue.acknowledge(0, 0, REJECT)
    await queue.settle()
    assert queue.persister.writes == [(1, 0, [])]
    assert queue.letters.written == []
    assert not queue.partitions.counts.letters  # counts exist only for groups with dead letters


@scenario
async def test_below_share_version_2_there_are_no_dead_letters():
    queue = Queue(**DLQ)
    queue.view.image = ClusterImage(group_configs={GROUP: DLQ})
    queue.append(1)
    await queue.acquire()
    await queue.acknowledge(0, 0, REJECT)
    await queue.settle()
    assert queue.persister.writes == [(1, 0, [])]


@with_log
async def test_a_queue_that_refuses_makes_the_record_wait_and_the_log_says_why_once(caplog):
    queue = Queue(**DLQ)
    queue.append(1)
    await queue.acquire()
    queue.letters.failures = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 5
    await queue.acknowledge(0, 0, REJECT)
    await queue.settle()
    assert queue.persister.writes == [(0, 0, [(0, 0, ARCHIVING, 1)])]
    assert [r.getMessage() for r in caplog.records] == [
        "dead letters of t-0 of share group g wait: UNKNOWN_TOPIC_OR_PARTITION: "
        + caplog.records[0].getMessage().rpartition(": ")[2]
    ]
    await asyncio.sleep(30)
    assert queue.letters.written == [(0, 0, 1, True)]
    assert queue.persister.writes[-1] == (1, 0, [])


@with_log
async def test_an_unforeseen_error_makes_the_record_wait_and_the_log_has_its_traceback(caplog):
    queue = Queue(**DLQ)
    queue.append(1)
    await queue.acquire()
    queue.letters.failures = [IndexError("a short response")] * 3
    await queue.acknowledge(0, 0, REJECT)
    await asyncio.sleep(30)
    assert queue.letters.written == [(0, 0, 1, True)]
    assert queue.persister.writes[-1] == (1, 0, [])
    assert [record.exc_info is not None for record in caplog.records].count(True) == 1


@scenario
async def test_a_call_that_writes_nothing_is_followed_by_a_pause():
    queue = Queue(**DLQ)
    queue.append(1)
    await queue.acquire()
    queue.letters.idle_calls = 10
    await queue.acknowledge(0, 0, REJECT)
    await asyncio.sleep(1)
    assert queue.letters.calls < 10
    await asyncio.sleep(60)
    assert queue.letters.written == [(0, 0, 1, True)]


@scenario
async def test_a_record_that_waits_for_its_dead_letter_keeps_no_others_back():
    queue = Queue(**DLQ, **{"share.partition.max.record.locks": "100"})
    queue.letters.may_answer.clear()
    queue.append(1)
    await queue.acquire()
    await queue.acknowledge(0, 0, REJECT)
    for batch in range(10):
        queue.append(50)
        first = 1 + 50 * batch
        assert await queue.acquire() == [(first, first + 49, 1)]
        await queue.acknowledge(first, first + 49)
    assert queue.persister.writes[-1][0] == 0
    queue.letters.may_answer.set()
    await queue.settle()
    assert queue.persister.writes[-1][0] == 501


@scenario
async def test_as_many_records_wait_for_dead_letters_as_the_group_may_lock():
    queue = Queue(**DLQ, **{"share.partition.max.record.locks": "100"})
    queue.letters.may_answer.clear()
    queue.append(100)
    await queue.acquire()
    await queue.acknowledge(0, 99, REJECT)
    queue.append(1)
    poll = queue.fetch()
    await queue.settle()
    assert poll.is_waiting
    queue.letters.may_answer.set()
    assert await poll.acquired == [(100, 100, 1)]


@scenario
async def test_one_batch_of_dead_letters_is_in_doubt_at_a_time():
    queue = Queue(**DLQ)
    queue.append(4)
    await queue.acquire()
    await queue.acknowledge(0, 0, REJECT)
    queue.letters.may_answer.clear()
    await queue.settle()
    await queue.acknowledge(2, 2, REJECT)
    queue.letters.may_answer.set()
    queue.persister.may_answer.clear()
    await queue.settle()
    written = len(queue.letters.written)
    await queue.settle()
    assert len(queue.letters.written) == written  # the archived state of the first is not stored yet
    queue.persister.may_answer.set()
    await queue.settle()
    assert queue.letters.written == [(0, 0, 1, True), (2, 2, 1, True)]


@scenario
async def test_another_leader_takes_over_what_was_given_up_and_knows_that_it_is_in_doubt():
    queue = Queue(**DLQ)
    queue.append(3)
    queue.persister.states[KEY] = ShareState(0, 4, 0, 0, (StateBatch(1, 1, ARCHIVING, 5),))
    assert await queue.acquire() == [(0, 0, 1), (2, 2, 1)]
    await queue.settle()
    assert queue.letters.in_doubt == [True]
    assert queue.letters.written == [(1, 1, 5, False)]


@with_log
async def test_a_group_that_gives_up_its_queue_archives_what_waits(caplog):
    queue = Queue(**DLQ)
    queue.append(1)
    await queue.acquire()
    queue.letters.failures = [ErrorCode.INVALID_CONFIG] * 3
    await queue.acknowledge(0, 0, REJECT)
    await queue.settle()
    queue.view.image = queue.view.image._replace(group_configs={})
    await asyncio.sleep(10)
    assert queue.letters.written == []
    assert queue.persister.writes[-1] == (1, 0, [])
    assert "archived without one" in caplog.text


@scenario
async def test_dead_letters_are_written_after_the_last_member_has_left():
    queue = Queue(**DLQ)
    queue.append(1)
    await queue.acquire()
    queue.letters.may_answer.clear()
    await queue.acknowledge(0, 0, REJECT)
    queue.partitions.end_session(Member(GROUP, "a"), True)
    await queue.settle()
    assert len(queue.partitions) == 1
    queue.letters.may_answer.set()
    await queue.settle()
    assert queue.letters.written == [(0, 0, 1, True)]
    assert queue.persister.writes[-1] == (1, 0, [])
    assert len(queue.partitions) == 0


@scenario
async def test_a_member_that_comes_back_meanwhile_reads_the_state_anew():
    queue = Queue(**DLQ)
    queue.append(1)
    await queue.acquire()
    queue.letters.may_answer.clear()
    await queue.acknowledge(0, 0, REJECT)
    queue.partitions.end_session(Member(GROUP, "a"), True)
    await queue.settle()
    queue.append(1)
    assert await queue.acquire("b") == [(1, 1, 1)]
    assert queue.persister.reads == 2
    assert queue.letters.in_doubt == [False, True]


@scenario
async def test_a_leader_learns_from_the_stored_state_that_it_is_one_no_more():
    queue = Queue(**DLQ)
    queue.append(1)
    await queue.acquire()
    await queue.letters.check_leader()
    assert len(queue.partitions) == 1
    queue.persister.failures = [ErrorCode.FENCED_LEADER_EPOCH]
    with pytest.raises(KafkaError):
        await queue.letters.check_leader()
    assert len(queue.partitions) == 0


@scenario
async def test_the_end_of_a_leadership_ends_its_dead_letters():
    queue = Queue(**DLQ)
    queue.append(1)
    await queue.acquire()
    queue.letters.may_answer.clear()
    await queue.acknowledge(0, 0, REJECT)
    await queue.settle()
    queue.partition.update(LED._replace(leader_epoch=6, partition_epoch=1))
    await queue.settle()
    queue.letters.may_answer.set()
    await queue.settle()
    assert queue.letters.written == []


@scenario
async def test_records_below_the_start_of_the_log_need_no_dead_letter_any_more():
    queue = Queue(**DLQ)
    queue.append(1)
    queue.append(1)
    await queue.acquire()
    queue.letters.failures = [ErrorCode.INVALID_CONFIG]
    await queue.acknowledge(0, 0, REJECT)
    await queue.settle()
    queue.partition.log.advance_log_start(1)
    queue.partition.bounds_moved()
    await asyncio.sleep(10)
    assert queue.letters.written == []


@with_log
async def test_a_defect_after_a_dead_letter_is_written_neither_doubles_it_nor_ends_the_others(caplog):
    queue = Queue(**DLQ)
    queue.append(2)
    await queue.acquire()
    queue.share_partition.in_flight.letters_written = lambda first, last: 1 / 0
    await queue.acknowledge(0, 0, REJECT)
    await queue.settle()
    assert "ZeroDivisionError" in caplog.text
    assert len(queue.partitions) == 0
    assert await queue.acquire() == [(1, 1, 1)]  # the next share partition asks the queue what it has
    assert queue.letters.in_doubt == [False, True]
    await queue.acknowledge(1, 1, REJECT)
    await queue.settle()
    assert queue.letters.written == [(0, 0, 1, True), (1, 1, 1, True)]
    assert queue.persister.writes[-1] == (2, 0, [])


@with_log
async def test_a_defect_while_dead_letters_are_counted_doubles_none(caplog):
    queue = Queue(**DLQ)
    queue.append(1)
    await queue.acquire()
    queue.letters.may_answer.clear()
    await queue.acknowledge(0, 0, REJECT)
    await queue.settle()
    queue.partitions.counts.letters_of = lambda group: 1 / 0
    queue.letters.may_answer.set()
    await queue.settle()
    assert "ZeroDivisionError" in caplog.text
    del queue.partitions.counts.letters_of
    queue.append(1)
    assert await queue.acquire() == [(1, 1, 1)]
    await queue.settle()
    assert queue.letters.written == [(0, 0, 1, True)]
