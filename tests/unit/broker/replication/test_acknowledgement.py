"""The answer to a produce with acks=all, and its time."""

from __future__ import annotations

import asyncio

import pytest
from simulation.virtual_time import run_virtual

from barnabas.base.errors import ErrorCode
from barnabas.broker.metadata.image import PartitionState
from barnabas.broker.replication.acknowledgement import Acknowledgement, Appended
from barnabas.broker.replication.partition import ACKS_ALL


def led(isr=(1, 2), epoch=5, partition_epoch=7, leader=1):
    return PartitionState((1, 2, 3), isr, leader, epoch, partition_epoch)


@pytest.fixture
def produce(append):
    """Append with acks=all, and return the errors that the client gets."""

    async def produce(partition, timeout_ms=30_000):
        errors = []
        info = append(partition, ACKS_ALL)
        appended = Appended(
            partition, info.last_offset, partition.leader_epoch, lambda e: errors.append(e.code)
        )
        await Acknowledgement([appended], ACKS_ALL, True).wait(timeout_ms).future
        return errors

    return produce


def test_it_is_acknowledged_when_all_in_sync_have_it(lead, produce, fetch):
    async def main():
        partition = lead(led())
        answer = asyncio.create_task(produce(partition))
        await asyncio.sleep(1)
        assert not answer.done()
        fetch(partition, 2, 1)
        assert await answer == []

    run_virtual(main())


@pytest.mark.parametrize("leader", [1, 2])
def test_it_fails_at_the_end_of_its_leader_epoch_also_when_the_same_broker_leads_on(lead, produce, leader):
    async def main():
        partition = lead(led())
        answer = asyncio.create_task(produce(partition))
        await asyncio.sleep(1)
        partition.update(led(epoch=6, partition_epoch=8, leader=leader))
        assert await answer == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert asyncio.get_running_loop().time() == 1

    run_virtual(main())


def test_a_watermark_that_moves_on_after_a_demotion_acknowledges_nothing(lead, produce):
    """KAFKA-20634: another leader has written the record at this offset. The producer's own record was
    truncated.
    """

    async def main():
        partition = lead(led())
        answer = asyncio.create_task(produce(partition))
        await asyncio.sleep(1)
        partition.update(led(epoch=6, partition_epoch=8, leader=2))
        partition.log.advance_high_watermark(1)
        partition.committed(100)
        assert await answer == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    run_virtual(main())


def test_it_fails_when_the_leader_resigns(lead, produce):
    async def main():
        partition = lead(led())
        answer = asyncio.create_task(produce(partition))
        await asyncio.sleep(1)
        partition.resign()
        assert await answer == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    run_virtual(main())


def test_it_outlasts_an_isr_that_was_too_small_for_a_while(lead, produce, fetch):
    async def main():
        partition = lead(led(), min_insync_replicas=2)
        answer = asyncio.create_task(produce(partition))
        await asyncio.sleep(1)
        partition.update(led(isr=(1,), partition_epoch=8))
        await asyncio.sleep(1)
        assert not answer.done()
        partition.update(led(isr=(1, 3), partition_epoch=9))
        fetch(partition, 3, 1)
        assert await answer == []

    run_virtual(main())


def test_when_the_time_is_up_it_says_whether_too_few_replicas_were_in_sync(lead, produce):
    async def main():
        partition = lead(led(), min_insync_replicas=2)
        assert await produce(partition, 1000) == [ErrorCode.REQUEST_TIMED_OUT]
        answer = asyncio.create_task(produce(partition, 1000))
        await asyncio.sleep(0.5)
        partition.update(led(isr=(1,), partition_epoch=8))
        assert await answer == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]

    run_virtual(main())
