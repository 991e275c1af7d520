"""An internal topic of a coordinator: the records that count as committed, and the end of the leadership."""

from __future__ import annotations

import asyncio
import random

import pytest
from simulation.blocking import VirtualThreads
from simulation.virtual_time import run_virtual

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.awaitables import is_awaitable
from barnabas.broker.logs.cold_reads import ColdReads
from barnabas.broker.metadata.image import PartitionState
from barnabas.broker.replication.internal_log import ReplicatedLog
from barnabas.kafka.records import Record, encode_batch

ALL = (1, 2, 3)
EPOCH = 5
NOW = 1
BATCH = encode_batch([Record(b"key", b"value", 0)])


def led(isr=ALL, epoch=EPOCH, partition_epoch=7, leader=1):
    return PartitionState(ALL, isr, leader, epoch, partition_epoch)


class Replicas:
    def __init__(self, partition):
        self.partition = partition

    def find(self, topic, index):
        assert (topic, index) == ("t", 0)
        return self.partition


@pytest.fixture
def replica(lead):
    return lead(led(), min_insync_replicas=2)


@pytest.fixture
def log(replica):
    cold_reads = ColdReads(VirtualThreads(random.Random(1), 0.0001))
    return ReplicatedLog("t", Replicas(replica), cold_reads)


def failure(future):
    with pytest.raises(KafkaError) as raised:
        future.result()
    return raised.value.code


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


def test_an_append_is_committed_when_every_in_sync_replica_has_it(log, fetch, replica):
    async def scenario():
        appended = asyncio.ensure_future(log.append(0, BATCH, EPOCH, NOW))
        fetch(replica, 2, 1)
        await settle()
        assert not appended.done()
        fetch(replica, 3, 1)
        await settle()
        assert appended.result() is None

    run_virtual(scenario())


def test_an_append_may_be_committed_after_too_few_replicas_were_in_sync(log, fetch, replica):
    async def scenario():
        appended = asyncio.ensure_future(log.append(0, BATCH, EPOCH, NOW))
        await settle()
        replica.update(led(isr=(1,), partition_epoch=8))
        await settle()
        assert not appended.done()  # to fail here would leave memory without what the log has
        with pytest.raises(KafkaError, match="NOT_ENOUGH_REPLICAS"):
            log.append(0, BATCH, EPOCH, NOW)
        fetch(replica, 2, 1)
        replica.update(led(isr=(1, 2), partition_epoch=9))
        await settle()
        assert appended.result() is None

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (led(leader=2, epoch=6, partition_epoch=8), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (led(epoch=6, partition_epoch=8), ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_what_waits_fails_with_its_leader_epoch_even_when_it_is_committed_in_the_next(
    log, fetch, replica, state, code
):
    async def scenario():
        appended = asyncio.ensure_future(log.append(0, BATCH, EPOCH, NOW))
        loading = asyncio.ensure_future(log.committed(0, 1, EPOCH))
        await settle()
        replica.update(state)
        if state.leader == 1:
            fetch(replica, 2, 1)
            fetch(replica, 3, 1)
            assert replica.log.high_watermark == 1
        await settle()
        assert failure(appended) is failure(loading) is code
        with pytest.raises(KafkaError):
            log.append(0, BATCH, EPOCH, NOW)
        with pytest.raises(KafkaError):
            log.bounds(0, EPOCH)

    run_virtual(scenario())


def test_nothing_is_appended_behind_what_failed_with_the_disk(log, replica):
    async def scenario():
        appended = asyncio.ensure_future(log.append(0, BATCH, EPOCH, NOW))
        await settle()
        replica.refuse_writes(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
        await settle()
        assert failure(appended) is ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
            log.append(0, BATCH, EPOCH, NOW)

    run_virtual(scenario())


def test_a_log_is_loaded_to_its_end_and_not_to_the_high_watermark(log, fetch, replica, append):
    async def scenario():
        append(replica, count=3)
        assert replica.log.high_watermark == 0
        assert log.bounds(0, EPOCH) == (0, 3)
        waiting = log.committed(0, 3, EPOCH)
        assert is_awaitable(waiting)
        waiting = asyncio.ensure_future(waiting)
        fetch(replica, 2, 3)
        fetch(replica, 3, 2)
        await settle()
        assert not waiting.done()
        fetch(replica, 3, 3)
        await waiting
        assert log.committed(0, 3, EPOCH) is None

    run_virtual(scenario())
