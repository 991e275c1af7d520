"""The typed records that were replayed and the bytes in the log give the same transactions."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from simulation.virtual_time import run_virtual

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import ProducerIdentity, TopicPartition
from barnabas.broker.coordinator.transactions.codec import (
    TransactionRecord,
    decode_record,
    transaction_record,
)
from barnabas.broker.coordinator.transactions.transaction import Transaction, TransactionState
from barnabas.kafka.records import Record, encode_batch

steps = st.lists(
    st.one_of(
        st.tuples(st.just("init"), st.booleans()),
        st.tuples(st.just("add"), st.integers(0, 2)),
        st.tuples(st.just("end"), st.booleans()),
        st.tuples(st.just("fail"), st.booleans()),
        st.tuples(st.just("refuse"), st.booleans()),
        st.tuples(st.just("sleep"), st.sampled_from([1, 100, 7_300])),
    ),
    max_size=30,
)


async def do(transactions, step, producer, version):
    """Execute one step of a client, of its broker or of the disk. Return the producer afterwards."""
    name, what = step
    if name == "init":
        answer = await transactions.init(tuple(producer) if what and producer else None)
        return answer if isinstance(answer, ProducerIdentity) else producer
    if name == "fail":
        transactions.log.failure = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS) if what else None
    elif name == "refuse":
        refusal = {TopicPartition("t", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER}
        transactions.markers.refusals = refusal if what else {}
    elif name == "sleep":
        await asyncio.sleep(what)
    elif producer is not None and name == "add":
        await transactions.add(producer, TopicPartition("t", what), version=version)
    elif producer is not None:
        answer = await transactions.end(producer, commit=what, version=version)
        return answer if isinstance(answer, ProducerIdentity) else producer
    return producer


@given(steps, st.sampled_from([0, 1, 2]), st.sampled_from([-1, 2**15 - 3]))
def test_transactions_are_the_same_by_typed_records_and_by_bytes(
    make_transactions, memory_log, steps, version, epoch
):
    async def scenario():
        log = memory_log()
        transactions = make_transactions(log, version=version, transactional_id_expiration_ms=3_600_000)
        ((_, live),) = transactions.coordinator.active_shards()
        own = live.replay

        def replay(record):
            assert live.decode(*record.encode()) == record
            own(record)

        live.replay = replay
        if epoch >= 0:  # few are left
            almost_used_up = transaction_record("x", Transaction(5, epoch, 60_000, 0), version)
            live.replay(almost_used_up)
            log.append(0, encode_batch([Record(*almost_used_up.encode(), 0)]), 0)
        producer = None
        for step in steps:
            producer = await do(transactions, step, producer, version)
        stored = dict(live.transactions)
        await transactions.coordinator.stop()
        again = make_transactions(log, version=version)
        again.markers.hold = True  # what is prepared stays so
        while again.coordinator.is_loading():
            await asyncio.sleep(0)
        ((_, loaded),) = again.coordinator.active_shards()
        assert loaded.transactions == stored
        await again.coordinator.stop()

    run_virtual(scenario())


def test_before_transactions_v1_a_record_has_no_other_producer_ids():
    transaction = Transaction(
        5, 1, 60_000, 7, TransactionState.PREPARE_COMMIT, previous_producer_id=4, next_producer_id=6
    )
    record = transaction_record("x", transaction, 0)
    assert record.transaction == transaction._replace(previous_producer_id=-1, next_producer_id=-1)
    assert decode_record(*record.encode()) == record
    assert decode_record(*transaction_record("x", transaction, 2).encode()) == TransactionRecord(
        "x", transaction, 1
    )
