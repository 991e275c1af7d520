"""EndTxn, the markers and the next transaction, in both versions of transactions."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import ProducerIdentity, TopicPartition
from barnabas.broker.awaitables import resolve
from barnabas.broker.coordinator.transactions.codec import decode_record
from barnabas.kafka.records import all_records

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
VERSIONS = pytest.mark.parametrize("version", [0, 2])


async def begun(transactions, *partitions, version=0):
    producer = await transactions.init()
    assert await transactions.add(producer, *(partitions or (A, B)), version=version) is None
    return producer


@VERSIONS
@pytest.mark.parametrize("commit", [True, False])
def test_end_writes_a_marker_to_each_partition(transact, commit, version):
    async def scenario(transactions):
        producer = await begun(transactions, version=version)
        following = await transactions.end(producer, commit=commit, version=version)
        assert following == (1001, 1 if version == 2 else 0)
        assert [tp for _, tp in transactions.markers.written] == [A, B]
        marker = transactions.markers.written[0][0]
        assert marker == (1001, following.epoch, commit, 0, version)
        end = "Commit" if commit else "Abort"
        assert transactions.stored() == ["Empty", "Ongoing", f"Prepare{end}", f"Complete{end}"]

    transact(scenario)


@pytest.mark.parametrize("replicas", ["one", "several"])
def test_events_of_an_end_come_in_one_order_however_many_replicas_there_are(transact, replicas):
    async def scenario(transactions):
        producer = await transactions.init()
        await transactions.add(producer, A)
        events = []
        append, write = transactions.log.append, transactions.markers.write

        def note_append(partition, batch, epoch, now_ms):
            (record,) = all_records(batch)
            stored = decode_record(record.key, record.value)
            events.append(f"append {stored.transaction.state.label}")
            return append(partition, batch, epoch)

        def note_markers(marker, partitions):
            events.append("markers")
            return write(marker, partitions)

        async def end():
            await resolve(transactions.coordinator.end("x", producer, commit=True, version=0))
            events.append("answer")

        transactions.log.append, transactions.markers.write = note_append, note_markers
        transactions.log.hold = replicas == "several"
        ending = asyncio.ensure_future(end())
        await asyncio.sleep(0.01)
        if replicas == "several":
            assert events == ["append PrepareCommit"]
            transactions.log.commit_next()
            await asyncio.sleep(0.01)
            transactions.log.commit_next()
        await ending
        await asyncio.sleep(0.01)
        assert events == ["append PrepareCommit", "answer", "markers", "append CompleteCommit"]
        assert transactions.state == "CompleteCommit"

    transact(scenario)


def test_an_end_that_nothing_holds_up_is_answered_in_the_same_turn_before_its_markers(transact):
    async def scenario(transactions):
        producer = await begun(transactions)
        answer = transactions.coordinator.end("x", producer, commit=True, version=0)
        assert answer == producer
        assert transactions.markers.written == []

    transact(scenario)


def test_repeated_commit_is_done_already(transact):
    async def scenario(transactions):
        producer = await begun(transactions)
        await transactions.commit(producer)
        assert await transactions.commit(producer) == producer
        assert await transactions.abort(producer) == ErrorCode.INVALID_TXN_STATE
        assert len(transactions.markers.written) == 2

    transact(scenario)


def test_repeated_commit_of_v2_tells_the_new_epoch_again(transact):
    async def scenario(transactions):
        producer = await begun(transactions, version=2)
        assert await transactions.commit(producer, 2) == (1001, 1)
        assert await transactions.commit(producer, 2) == (1001, 1)
        assert await transactions.abort(producer, 2) == ErrorCode.INVALID_TXN_STATE
        assert len(transactions.markers.written) == 2

    transact(scenario)


def test_v2_fences_the_epoch_that_has_ended(transact):
    async def scenario(transactions):
        producer = await begun(transactions, version=2)
        await transactions.commit(producer, 2)
        assert await transactions.add(producer, A, version=2) == ErrorCode.PRODUCER_FENCED

    transact(scenario)


@pytest.mark.parametrize(
    ("version", "commit", "expected"),
    [
        (0, True, ErrorCode.INVALID_TXN_STATE),
        (0, False, ErrorCode.INVALID_TXN_STATE),
        (2, True, ErrorCode.INVALID_TXN_STATE),
        (2, False, (1001, 1)),
    ],
)
def test_end_of_nothing(transact, version, commit, expected):
    async def scenario(transactions):
        producer = await transactions.init()
        assert await transactions.end(producer, commit=commit, version=version) == expected

    transact(scenario)


@pytest.mark.parametrize("committed", [True, False])
def test_v2_may_abort_what_never_began_after_a_transaction(transact, committed):
    async def scenario(transactions):
        producer = await begun(transactions, version=2)
        producer = await transactions.end(producer, commit=committed, version=2)
        assert await transactions.abort(producer, 2) == (1001, 2)
        assert await transactions.abort(producer, 2) == (1001, 2), "the repeat"
        assert await transactions.commit(producer, 2) == ErrorCode.PRODUCER_FENCED, "KAFKA-20785"
        assert await transactions.commit(ProducerIdentity(1001, 2), 2) == ErrorCode.INVALID_TXN_STATE

    transact(scenario)


@VERSIONS
def test_end_again_while_markers_are_written_is_told_to_wait(transact, version):
    async def scenario(transactions):
        producer = await begun(transactions, version=version)
        transactions.markers.hold = True
        await transactions.commit(producer, version)
        assert await transactions.commit(producer, version) == ErrorCode.CONCURRENT_TRANSACTIONS
        assert await transactions.abort(producer, version) == ErrorCode.CONCURRENT_TRANSACTIONS
        transactions.markers.release()
        await asyncio.sleep(0.01)
        assert (await transactions.commit(producer, version)).producer_id == 1001

    transact(scenario)


def test_empty_abort_while_the_markers_of_the_last_transaction_are_written_is_told_to_wait(transact):
    async def scenario(transactions):
        producer = await begun(transactions, version=2)
        transactions.markers.hold = True
        producer = await transactions.commit(producer, 2)
        assert await transactions.abort(producer, 2) == ErrorCode.CONCURRENT_TRANSACTIONS
        assert await transactions.abort(producer, 2) == ErrorCode.CONCURRENT_TRANSACTIONS
        transactions.markers.release()
        await asyncio.sleep(0.01)
        assert await transactions.abort(producer, 2) == (1001, 2)

    transact(scenario)


def test_unknown_id_or_producer_is_refused(transact):
    async def scenario(transactions):
        stranger = ProducerIdentity(5, 0)
        assert await transactions.add(stranger, A) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await transactions.commit(stranger) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        await transactions.init()
        assert await transactions.add(stranger, A) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await transactions.commit(stranger, 2) == ErrorCode.INVALID_PRODUCER_ID_MAPPING

    transact(scenario)


def test_partition_that_is_in_already_costs_no_record(transact):
    async def scenario(transactions):
        producer = await begun(transactions, A)
        before = len(transactions.stored())
        assert await transactions.add(producer, A) is None
        assert len(transactions.stored()) == before

    transact(scenario)


def test_verification_tells_what_is_in(transact):
    async def scenario(transactions):
        producer = await begun(transactions, A)
        verdicts = transactions.coordinator.verify_partitions("x", producer, [A, B])
        assert verdicts == {A: ErrorCode.NONE, B: ErrorCode.TRANSACTION_ABORTABLE}

    transact(scenario)


def test_marker_that_fails_is_written_again_and_only_that(transact):
    async def scenario(transactions):
        producer = await begun(transactions)
        transactions.markers.refusals[B] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await transactions.commit(producer) == producer
        await asyncio.sleep(1)
        _, left = transactions.coordinator.describe("x")
        assert (transactions.state, set(left)) == ("PrepareCommit", {B})
        transactions.markers.refusals.clear()
        await asyncio.sleep(1)
        assert transactions.state == "CompleteCommit"
        assert [tp for _, tp in transactions.markers.written] == [A, B]

    transact(scenario)


def test_deleted_topic_needs_no_marker(transact):
    async def scenario(transactions):
        producer = await begun(transactions)
        transactions.markers.refusals[B] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await transactions.commit(producer)
        assert transactions.state == "CompleteCommit"

    transact(scenario)


def test_overtaken_coordinator_stops(transact):
    async def scenario(transactions):
        producer = await begun(transactions)
        transactions.markers.refusals[B] = ErrorCode.TRANSACTION_COORDINATOR_FENCED
        await transactions.commit(producer)
        await asyncio.sleep(10)
        assert transactions.state == "PrepareCommit"

    transact(scenario)


@VERSIONS
def test_silent_producer_is_aborted_and_cannot_commit(transact, version):
    async def scenario(transactions):
        producer = await transactions.init(timeout_ms=30_000)
        await transactions.add(producer, A)
        await asyncio.sleep(29)
        assert transactions.state == "Ongoing"
        await asyncio.sleep(12)
        assert transactions.state == "CompleteAbort"
        assert await transactions.commit(producer, version) == ErrorCode.PRODUCER_FENCED
        assert await transactions.add(producer, A, version=version) == ErrorCode.PRODUCER_FENCED
        assert not transactions.markers.written[0][0].commit

    transact(scenario, version=version)


def test_time_runs_from_the_first_partition_of_each_transaction(transact):
    async def scenario(transactions):
        producer = await transactions.init(timeout_ms=30_000)
        for _ in range(3):
            await transactions.add(producer, A)
            await asyncio.sleep(20)
            assert await transactions.commit(producer) == producer
        await asyncio.sleep(100)
        assert transactions.state == "CompleteCommit"

    transact(scenario)


def test_unused_id_is_forgotten(transact):
    async def scenario(transactions):
        producer = await begun(transactions)
        await transactions.commit(producer)
        await asyncio.sleep(7200)
        assert [name for name, _ in transactions.coordinator.transactions()] == ["x"]
        await asyncio.sleep(3600 * 10)
        assert list(transactions.coordinator.transactions()) == []
        assert transactions.stored()[-1] == "-"
        assert list((await transactions.restart()).coordinator.transactions()) == []

    transact(scenario, transactional_id_expiration_ms=3600 * 10_000)


def test_open_transaction_is_not_forgotten(transact):
    async def scenario(transactions):
        await begun(transactions)
        transactions.markers.hold = True
        await asyncio.sleep(3600 * 3)
        assert transactions.state == "PrepareAbort"

    transact(scenario, transactional_id_expiration_ms=1000)


@VERSIONS
@pytest.mark.parametrize("commit", [True, False])
def test_coordinator_that_dies_between_prepare_and_markers_finishes_after_its_restart(
    transact, commit, version
):
    async def scenario(transactions):
        producer = await begun(transactions, version=version)
        transactions.markers.hold = True
        following = await transactions.end(producer, commit=commit, version=version)
        again = await transactions.restart(epoch=7)
        assert again.state == ("CompleteCommit" if commit else "CompleteAbort")
        assert [(m.commit, m.producer_epoch, m.coordinator_epoch) for m, _ in again.markers.written] == [
            (commit, following.epoch, 7)
        ] * 2
        assert transactions.markers.written == []
        assert await again.end(producer, commit=commit, version=version) == following

    transact(scenario)


def test_coordinator_that_dies_between_markers_writes_all_again(transact):
    async def scenario(transactions):
        producer = await begun(transactions)
        transactions.markers.refusals[B] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        await transactions.commit(producer)
        again = await transactions.restart()
        assert [tp for _, tp in again.markers.written] == [A, B]
        assert again.state == "CompleteCommit"

    transact(scenario)


def test_open_transaction_survives_a_restart_of_the_coordinator(transact):
    async def scenario(transactions):
        producer = await begun(transactions)
        again = await transactions.restart()
        assert again.state == "Ongoing"
        assert await again.commit(producer) == producer

    transact(scenario)


def test_failed_append_changes_nothing(transact):
    async def scenario(transactions):
        producer = await begun(transactions)
        transactions.log.failure = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert await transactions.commit(producer) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await transactions.init() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        transactions.log.failure = None
        assert transactions.state == "Ongoing"
        assert await transactions.commit(producer) == producer

    transact(scenario)


def test_end_that_could_not_be_stored_is_stored_later(transact):
    async def scenario(transactions):
        producer = await begun(transactions)
        transactions.markers.hold = True
        await transactions.commit(producer)
        transactions.log.failure = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        transactions.markers.release()
        await asyncio.sleep(1)
        assert transactions.state == "PrepareCommit"
        transactions.log.failure = None
        await asyncio.sleep(1)
        assert transactions.state == "CompleteCommit"

    transact(scenario)


def test_each_step_waits_until_the_one_before_is_committed(transact):
    async def scenario(transactions):
        producer = await transactions.init()
        transactions.log.hold = True
        adding = asyncio.ensure_future(transactions.add(producer, A))
        ending = asyncio.ensure_future(transactions.commit(producer))
        await asyncio.sleep(0.1)
        assert not adding.done() and not ending.done()
        transactions.log.commit_next()
        await asyncio.sleep(0.1)
        assert adding.done() and transactions.state == "Ongoing" and not ending.done()
        transactions.log.commit_next()
        assert await ending == producer
        transactions.log.commit_next()
        await asyncio.sleep(0.1)
        assert transactions.state == "CompleteCommit"

    transact(scenario)


def test_markers_that_are_refused_are_tried_with_growing_pauses_and_one_warning(transact, caplog):
    async def scenario(transactions):
        producer = await begun(transactions)
        transactions.markers.refusals[B] = ErrorCode.KAFKA_STORAGE_ERROR
        attempts = 0
        write = transactions.markers.write

        def counted(marker, partitions):
            nonlocal attempts
            attempts += 1
            return write(marker, partitions)

        transactions.markers.write = counted
        await transactions.commit(producer)
        await asyncio.sleep(60)
        assert 5 < attempts < 20
        (warning,) = [r.message for r in caplog.records if r.levelname == "WARNING"]
        assert "'x'" in warning and str(B) in warning and "KAFKA_STORAGE_ERROR" in warning
        transactions.markers.refusals.clear()
        await asyncio.sleep(5)
        assert transactions.state == "CompleteCommit"

    transact(scenario)


def test_end_that_cannot_be_stored_is_tried_with_growing_pauses_and_one_warning(transact, caplog):
    async def scenario(transactions):
        producer = await begun(transactions)
        transactions.markers.hold = True
        await transactions.commit(producer)
        transactions.log.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")
        transactions.log.attempts = 0
        transactions.markers.release()
        await asyncio.sleep(60)
        assert 5 < transactions.log.attempts < 20
        (warning,) = [r.message for r in caplog.records if r.levelname == "WARNING"]
        assert "no space left" in warning
        transactions.log.failure = None
        await asyncio.sleep(5)
        assert transactions.state == "CompleteCommit"

    transact(scenario)


def test_housekeeping_outlives_its_own_failure(transact, monkeypatch):
    async def scenario(transactions):
        await begun(transactions)
        everything = transactions.coordinator._all

        def fail():
            monkeypatch.setattr(transactions.coordinator, "_all", everything)
            raise RuntimeError("once")

        monkeypatch.setattr(transactions.coordinator, "_all", fail)
        await asyncio.sleep(120)  # the transaction's own timeout, and twice the interval
        assert transactions.state == "CompleteAbort"

    transact(scenario)


def test_next_transaction_begins_as_soon_as_the_last_one_has_its_markers(transact):
    """A producer that must retry would begin much later."""

    async def scenario(transactions):
        producer = await begun(transactions)
        transactions.markers.hold = True
        await transactions.commit(producer)
        adding = asyncio.ensure_future(transactions.add(producer, B))
        await asyncio.sleep(0.05)
        assert not adding.done()
        transactions.markers.release()
        assert await adding is None
        assert transactions.state == "Ongoing"
        assert asyncio.get_running_loop().time() < 0.06

    transact(scenario)


def test_next_transaction_is_told_to_wait_when_the_markers_take_long(transact):
    async def scenario(transactions):
        producer = await begun(transactions)
        transactions.markers.hold = True
        await transactions.commit(producer)
        assert await transactions.add(producer, B) == ErrorCode.CONCURRENT_TRANSACTIONS

    transact(scenario)


def test_whoever_waits_for_markers_goes_to_the_next_coordinator(transact):
    async def scenario(transactions):
        producer = await begun(transactions)
        transactions.markers.hold = True
        await transactions.commit(producer)
        adding = asyncio.ensure_future(transactions.add(producer, B))
        await asyncio.sleep(0.05)
        transactions.coordinator.resign(0)
        assert await adding == ErrorCode.NOT_COORDINATOR

    transact(scenario)


@pytest.mark.parametrize("turns", range(4))
def test_markers_that_are_on_their_way_when_another_broker_takes_over_are_awaited_to_the_end(transact, turns):
    """A cancelled task that has not begun drops its coroutines and futures, and asyncio reports each."""
    awaited = []

    async def part(outcomes):
        awaited.append(outcomes)
        return outcomes

    async def whole(rest):
        (outcomes,) = await asyncio.gather(resolve(rest))
        return outcomes

    async def scenario(transactions):
        producer = await begun(transactions)
        write = transactions.markers.write
        transactions.markers.write = lambda marker, partitions: whole(part(write(marker, partitions)))
        transactions.coordinator.end("x", producer, commit=True, version=0)
        while not transactions.markers.written:
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        transactions.coordinator.resign(0)
        await asyncio.sleep(1)
        assert awaited == [{A: ErrorCode.NONE, B: ErrorCode.NONE}]
        if turns < 2:
            assert "CompleteCommit" not in transactions.stored(), "another broker completes it"

    transact(scenario)
