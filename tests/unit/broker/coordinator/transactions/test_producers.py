"""InitProducerId: the producers that may use a transactional id, and their ids and epochs (KIP-98, KIP-360,
KIP-890).
"""

from __future__ import annotations

import asyncio

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.base.types import TopicPartition

A = TopicPartition("t", 0)
LAST_EPOCH = 2**15 - 2


async def exhaust(transactions):
    """Return a producer with the highest epoch that the coordinator gives."""
    producer = await transactions.init()
    shard = next(shard for _, shard in transactions.coordinator.active_shards())
    shard.transactions["x"] = shard.transactions["x"]._replace(epoch=LAST_EPOCH)
    return producer._replace(epoch=LAST_EPOCH)


def test_first_producer_gets_a_new_id_and_epoch_zero(transact):
    async def scenario(transactions):
        assert await transactions.init() == (1001, 0)
        assert transactions.state == "Empty"

    transact(scenario)


def test_next_producer_gets_the_next_epoch(transact):
    async def scenario(transactions):
        await transactions.init()
        assert await transactions.init() == (1001, 1)

    transact(scenario)


def test_restart_of_the_coordinator_forgets_no_epoch(transact):
    async def scenario(transactions):
        await transactions.init()
        assert await (await transactions.restart()).init() == (1001, 1)

    transact(scenario)


def test_predecessor_is_fenced(transact):
    async def scenario(transactions):
        old = await transactions.init()
        await transactions.init()
        assert await transactions.add(old, A) == ErrorCode.PRODUCER_FENCED
        assert await transactions.commit(old) == ErrorCode.PRODUCER_FENCED
        assert await transactions.commit(old, 2) == ErrorCode.PRODUCER_FENCED
        assert await transactions.init(old) == ErrorCode.PRODUCER_FENCED

    transact(scenario)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_open_transaction_of_the_predecessor_is_aborted_first(transact, version):
    async def scenario(transactions):
        old = await transactions.init()
        await transactions.add(old, A)
        assert await transactions.init() == ErrorCode.CONCURRENT_TRANSACTIONS
        marker, partition = transactions.markers.written.pop()
        assert (marker.commit, marker.producer_epoch, partition) == (False, 1, A)
        assert transactions.state == "CompleteAbort"
        assert await transactions.init() == (1001, 2)

    transact(scenario, version=version)


def test_producer_waits_while_the_end_before_is_being_written(transact):
    async def scenario(transactions):
        producer = await transactions.init()
        await transactions.add(producer, A)
        transactions.markers.hold = True
        await transactions.commit(producer)
        assert transactions.state == "PrepareCommit"
        assert await transactions.init() == ErrorCode.CONCURRENT_TRANSACTIONS
        assert await transactions.add(producer, A) == ErrorCode.CONCURRENT_TRANSACTIONS
        transactions.markers.release()
        await asyncio.sleep(0.01)
        assert await transactions.init() == (1001, 1)

    transact(scenario)


def test_producer_that_goes_on_after_an_error_raises_its_epoch(transact):
    async def scenario(transactions):
        producer = await transactions.init()
        assert await transactions.init(producer) == (1001, 1)

    transact(scenario)


def test_repeated_request_to_go_on_raises_the_epoch_once(transact):
    async def scenario(transactions):
        producer = await transactions.init()
        await transactions.init(producer)
        assert await transactions.init(producer) == (1001, 1)

    transact(scenario)


def test_repeat_is_fenced_when_someone_else_came_in_between(transact):
    async def scenario(transactions):
        producer = await transactions.init()
        await transactions.init(producer)
        await transactions.init()
        assert await transactions.init(producer) == ErrorCode.PRODUCER_FENCED

    transact(scenario)


def test_repeat_after_a_failover_is_fenced_as_in_kafka(transact):
    async def scenario(transactions):
        producer = await transactions.init()
        await transactions.init(producer)
        assert await (await transactions.restart()).init(producer) == ErrorCode.PRODUCER_FENCED

    transact(scenario)


def test_producer_of_a_forgotten_id_is_let_in(transact):
    async def scenario(transactions):
        assert await transactions.init((77, 5)) == (1001, 0)

    transact(scenario)


def test_id_of_another_producer_is_fenced(transact):
    async def scenario(transactions):
        await transactions.init()
        assert await transactions.init((77, 0)) == ErrorCode.PRODUCER_FENCED

    transact(scenario)


@pytest.mark.parametrize(("version", "expected"), [(0, ErrorCode.PRODUCER_FENCED), (2, (1001, 1))])
def test_producer_that_was_timed_out_may_go_on_with_v2_alone(transact, version, expected):
    async def scenario(transactions):
        producer = await transactions.init()
        await transactions.add(producer, A)
        await asyncio.sleep(100)
        assert transactions.state == "CompleteAbort"
        assert await transactions.init(producer) == expected

    transact(scenario, version=version)


def test_used_up_epochs_give_a_new_id(transact):
    async def scenario(transactions):
        last = await exhaust(transactions)
        assert await transactions.init(last) == (1002, 0)
        assert await transactions.init(last) == (1002, 0), "the repeat of a request whose answer was lost"
        assert await transactions.init() == (1002, 1)

    transact(scenario)


def test_used_up_epochs_give_a_new_id_at_the_end_of_a_transaction(transact):
    async def scenario(transactions):
        last = await exhaust(transactions)
        await transactions.add(last, A, version=2)
        assert await transactions.commit(last, 2) == (1002, 0)
        marker, _ = transactions.markers.written.pop()
        assert (marker.producer_id, marker.producer_epoch) == (1001, LAST_EPOCH + 1)
        assert await transactions.commit(last, 2) == (1002, 0), "the repeat"
        assert transactions.producer == (1002, 0)

    transact(scenario)


def test_a_new_id_is_told_to_wait_while_the_markers_of_the_old_id_are_written(transact):
    async def scenario(transactions):
        last = await exhaust(transactions)
        await transactions.add(last, A, version=2)
        transactions.markers.hold = True
        rotated = await transactions.commit(last, 2)
        assert rotated == (1002, 0)
        assert await transactions.abort(rotated, 2) == ErrorCode.CONCURRENT_TRANSACTIONS
        assert await transactions.add(rotated, A, version=2) == ErrorCode.CONCURRENT_TRANSACTIONS
        transactions.markers.release()
        await asyncio.sleep(0.01)
        assert await transactions.add(rotated, A, version=2) is None

    transact(scenario)


def test_fencing_the_last_epoch_leaves_room_for_a_new_id(transact):
    async def scenario(transactions):
        last = await exhaust(transactions)
        await transactions.add(last, A)
        assert await transactions.init() == ErrorCode.CONCURRENT_TRANSACTIONS
        assert transactions.producer == (1001, LAST_EPOCH + 1)
        rotated = await transactions.init()
        assert rotated.producer_id > 1001 and rotated.epoch == 0

    transact(scenario)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_timeout_beyond_the_cap_is_refused(transact, timeout_ms):
    async def scenario(transactions):
        assert await transactions.init(timeout_ms=timeout_ms) == ErrorCode.INVALID_TRANSACTION_TIMEOUT

    transact(scenario)


def test_concurrent_first_requests_share_one_id(transact):
    async def scenario(transactions):
        found = await asyncio.gather(transactions.init(), transactions.init())
        assert len({producer.producer_id for producer in found}) == 1
        assert {producer.epoch for producer in found} == {0, 1}

    transact(scenario)


@pytest.mark.parametrize("commit", [True, False])
def test_producer_whose_end_was_not_answered_may_begin_anew_with_its_old_epoch(transact, commit):
    async def scenario(transactions):
        producer = await transactions.init()
        await transactions.add(producer, TopicPartition("t", 0), version=2)
        assert await transactions.end(producer, commit=commit, version=2) == (1001, 1)  # the answer is lost
        assert await transactions.init(producer) == (1001, 1)

    transact(scenario)
