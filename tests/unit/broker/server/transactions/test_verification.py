"""The verifier accepts batches of transactions and keeps their order, in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from simulation.virtual_time import run_virtual
from tests.views import view_of

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import ProducerIdentity, TopicPartition
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.transactions.verification import TransactionalWrite, TransactionVerifier

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
PRODUCER = ProducerIdentity(1, 0)


class Coordinator:
    """A coordinator that answers with each of `errors`, and then accepts everything."""

    def __init__(self):
        self.errors = []
        self.asked = []
        self.hold = None

    def add_partitions(self, transactional_id, producer, partitions, version):
        self.asked.append(list(partitions))
        if self.errors:
            raise KafkaError(self.errors.pop(0))
        return self.hold

    def verify_partitions(self, transactional_id, producer, partitions):
        self.asked.append(list(partitions))
        if self.errors:
            raise KafkaError(self.errors.pop(0))
        return {p: ErrorCode.NONE if p == A else ErrorCode.TRANSACTION_ABORTABLE for p in partitions}


@pytest.fixture
def coordinator():
    return Coordinator()


def guard_of(coordinator, **settings):
    return TransactionVerifier(view_of(config=BrokerConfig(**settings)), coordinator)


def write(*partitions, adds=True):
    return TransactionalWrite("x", PRODUCER, partitions, adds)


def test_what_the_coordinator_knows_goes_in_at_once(coordinator):
    verifier = guard_of(coordinator)
    assert verifier.admit(write(A, B)) == {A: ErrorCode.NONE, B: ErrorCode.NONE}
    assert verifier.admit(write(A, B, adds=False)) == {A: ErrorCode.NONE, B: ErrorCode.TRANSACTION_ABORTABLE}


def test_verification_can_be_switched_off(coordinator):
    verifier = guard_of(coordinator, transaction_partition_verification_enable=False)
    assert verifier.admit(write(B, adds=False)) == {B: ErrorCode.NONE}
    assert coordinator.asked == []


@pytest.mark.parametrize("adds", [True, False])
def test_refusal_holds_for_every_partition(coordinator, adds):
    coordinator.errors = [ErrorCode.PRODUCER_FENCED]
    assert guard_of(coordinator).admit(write(A, B, adds=adds)) == dict.fromkeys(
        (A, B), ErrorCode.PRODUCER_FENCED
    )


def test_end_of_the_transaction_before_is_waited_for(coordinator):
    async def scenario():
        coordinator.errors = [ErrorCode.CONCURRENT_TRANSACTIONS] * 3
        began = asyncio.get_running_loop().time()
        assert await guard_of(coordinator).admit(write(A)) == {A: ErrorCode.NONE}
        assert asyncio.get_running_loop().time() - began == pytest.approx(0.06)

    run_virtual(scenario())


def test_patience_has_an_end(coordinator):
    async def scenario():
        coordinator.errors = [ErrorCode.CONCURRENT_TRANSACTIONS] * 100
        verifier = guard_of(coordinator)
        assert await verifier.admit(write(A)) == {A: ErrorCode.CONCURRENT_TRANSACTIONS}
        assert asyncio.get_running_loop().time() < 1
        assert not verifier.is_asking("x")

    run_virtual(scenario())


def test_verification_does_not_wait(coordinator):
    coordinator.errors = [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert guard_of(coordinator).admit(write(A, adds=False)) == {A: ErrorCode.CONCURRENT_TRANSACTIONS}


def test_writes_of_one_transaction_go_in_in_their_order(coordinator):
    async def scenario():
        verifier = guard_of(coordinator)
        done = []

        async def goes_in(name, admitted):
            await admitted
            done.append(name)

        coordinator.errors = [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
        first = asyncio.ensure_future(goes_in("first", verifier.admit(write(A))))
        await asyncio.sleep(0.005)
        coordinator.errors = []  # it has ended, but the first has not been told
        second = verifier.admit(write(A))
        assert not isinstance(second, dict), "it would overtake the first"
        await asyncio.gather(goes_in("second", second), first)
        assert done == ["first", "second"]
        assert isinstance(verifier.admit(write(A)), dict)

    run_virtual(scenario())


def test_coordinator_that_has_to_store_it_first_is_waited_for(coordinator):
    async def scenario():
        coordinator.hold = asyncio.get_running_loop().create_future()
        admitted = asyncio.ensure_future(guard_of(coordinator).admit(write(A)))
        await asyncio.sleep(1)
        assert not admitted.done()
        coordinator.hold.set_exception(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        assert await admitted == {A: ErrorCode.COORDINATOR_NOT_AVAILABLE}

    run_virtual(scenario())
