"""The batches of a transaction that a leader may append."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from simulation.virtual_time import run_virtual
from tests.views import view_of

from barnabas.base.errors import ErrorCode
from barnabas.base.types import TopicPartition
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.transactions.produce import refusals
from barnabas.broker.server.transactions.verification import TransactionVerifier
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.records import Record, encode_batch

#: the last version before transactions v2, in which each transaction raises the producer's epoch
TRANSACTIONS_V1 = 11


class Producers:
    """What the log of a partition knows of the only producer."""

    def __init__(self, *, is_open):
        self.is_open = is_open
        self.marker = -1

    def is_in_transaction(self, _producer):
        return self.is_open

    def last_marker(self, _producer_id):
        return self.marker

    def end(self):
        self.is_open, self.marker = False, self.marker + 1


class Coordinator:
    """It answers when `answer` is set: all partitions are in the transaction."""

    def __init__(self):
        self.answer = asyncio.Event()

    async def verify_partitions(self, _transactional_id, _producer, partitions):
        await self.answer.wait()
        return dict.fromkeys(partitions, ErrorCode.NONE)


class Replicas:
    def __init__(self, *producers):
        self._producers = producers

    def find(self, topic, index):
        log = SimpleNamespace(producers=self._producers[index])
        return SimpleNamespace(topic_partition=TopicPartition(topic, index), log=log, is_leader=True)


def request(*partitions):
    batch = encode_batch([Record(b"k", b"v", 0)], producer_id=1, producer_epoch=0, transactional=True)
    return ProduceRequest(
        transactional_id="x",
        topic_data=[
            TopicProduceData(
                name="t",
                partition_data=[PartitionProduceData(index=index, records=batch) for index in partitions],
            )
        ],
    )


def test_no_batch_is_appended_to_a_partition_whose_transaction_ends_while_the_leader_asks_about_another():
    """The batch would begin a transaction that nobody ends, or that the producer's next one ends."""

    async def scenario():
        has_records, is_new = Producers(is_open=True), Producers(is_open=False)
        coordinator = Coordinator()
        verifier = TransactionVerifier(view_of(config=BrokerConfig()), coordinator)
        replicas = Replicas(has_records, is_new)
        refused = asyncio.ensure_future(refusals(replicas, verifier, request(0, 1), TRANSACTIONS_V1))
        await asyncio.sleep(1)
        has_records.end()
        coordinator.answer.set()
        assert {name: error.code for name, error in (await refused).items()} == {
            ("t", 0): ErrorCode.INVALID_TXN_STATE
        }

    run_virtual(scenario())


def test_batches_of_a_partition_with_records_wait_behind_others_and_are_appended():
    async def scenario():
        has_records, is_new = Producers(is_open=True), Producers(is_open=False)
        coordinator = Coordinator()
        verifier = TransactionVerifier(view_of(config=BrokerConfig()), coordinator)
        replicas = Replicas(has_records, is_new)
        first = asyncio.ensure_future(refusals(replicas, verifier, request(1), TRANSACTIONS_V1))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(refusals(replicas, verifier, request(0), TRANSACTIONS_V1))
        await asyncio.sleep(1)
        assert not second.done()
        coordinator.answer.set()
        assert await first == await second == {}

    run_virtual(scenario())
