"""A broker's ISR proposals to the controller, and its reaction to each answer."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from simulation.virtual_time import run_virtual
from tests.views import view_of

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.interbroker import RequestTimeoutError
from barnabas.broker.metadata.image import ClusterImage, ImageDelta, PartitionState
from barnabas.broker.replication import isr_changes
from barnabas.broker.replication.isr_changes import IsrChanges


def view_in(broker_epoch):
    view = view_of()
    view.broker_epoch = broker_epoch
    return view


ALONE = PartitionState((1, 2, 3), (1,), 1, 5, 7)


@pytest.fixture
def changes(controller):
    """Send proposals while the context lasts."""

    @contextlib.asynccontextmanager
    async def running():
        changes = IsrChanges(view_in(77), controller.send)
        yield changes
        await changes.stop()

    return running


def test_partitions_that_have_proposals_in_one_turn_share_a_request(changes, lead, fetch, controller):
    async def main():
        async with changes() as running:
            partitions = [lead(ALONE, running.add, index=n) for n in range(3)]
            for partition in partitions:
                fetch(partition, 2, 0)
            await asyncio.sleep(1)
            (request,) = controller.requests
            assert (request.broker_id, request.broker_epoch) == (1, 77)
            assert [p.partition_index for p in request.topics[0].partitions] == [0, 1, 2]
            assert {p.state.isr for p in partitions} == {(1, 2)}

    run_virtual(main())


def test_what_comes_up_while_a_request_is_under_way_goes_with_the_next(changes, lead, fetch, controller):
    async def main():
        async with changes() as running:
            partition, other = (lead(ALONE, running.add, index=n) for n in range(2))
            fetch(partition, 2, 0)
            await asyncio.sleep(0.005)
            fetch(partition, 3, 0)
            fetch(other, 3, 0)
            await asyncio.sleep(1)
            assert [
                [(p.partition_index, p.new_isr, p.partition_epoch) for p in request.topics[0].partitions]
                for request in controller.requests
            ] == [[(0, [1, 2], 7)], [(1, [1, 3], 7), (0, [1, 2, 3], 8)]]

    run_virtual(main())


def test_large_numbers_of_partitions_are_divided(changes, lead, fetch, controller, monkeypatch):
    monkeypatch.setattr(isr_changes, "MAX_PARTITIONS", 2)

    async def main():
        async with changes() as running:
            for n in range(5):
                fetch(lead(ALONE, running.add, index=n), 2, 0)
            await asyncio.sleep(1)
            assert [len(r.topics[0].partitions) for r in controller.requests] == [2, 2, 1]

    run_virtual(main())


@pytest.mark.parametrize(
    "failure",
    [KafkaError(ErrorCode.NOT_CONTROLLER), RequestTimeoutError("late", may_have_been_carried_out=True)],
)
def test_a_request_that_fails_is_followed_by_another(
    changes, lead, append, fetch, controller, failure, caplog
):
    async def main():
        async with changes() as running:
            controller.answers = [failure] * 3
            partition = lead(ALONE, running.add)
            fetch(partition, 2, 0)
            await asyncio.sleep(0)
            append(partition)
            await asyncio.sleep(0.3)
            assert len(controller.requests) == 3
            assert partition.log.high_watermark == 0
            fetch(partition, 2, 1)
            await asyncio.sleep(0.3)
            assert partition.state.isr == (1, 2)
            assert partition.log.high_watermark == 1

    run_virtual(main())
    assert caplog.text.count("does not answer") == 1


def test_request_to_a_controller_that_hangs_is_sent_to_the_next_one(changes, lead, fetch, controller):
    """Simulation seed 1002189: a follower could not join again before the time limit of the request."""

    async def main():
        async with changes() as running:
            controller.hangs = True
            partition = lead(ALONE, running.add)
            fetch(partition, 2, 0)
            await asyncio.sleep(1)
            controller.hangs = False
            before, after = ClusterImage(cluster_id="c", controller_id=2), ClusterImage("c", controller_id=3)
            running.follow(ImageDelta(before, before))
            await asyncio.sleep(1)
            assert len(controller.requests) == 1
            running.follow(ImageDelta(before, after))
            await asyncio.sleep(0.1)
            assert len(controller.requests) == 2
            assert partition.state.isr == (1, 2)

    run_virtual(main())


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
    ],
)
def test_a_refused_proposal_is_followed_by_another_but_not_by_a_storm(
    changes, lead, fetch, controller, error
):
    """KAFKA-12751, KAFKA-2729: after no error does a proposal stay in flight forever."""

    async def main():
        async with changes() as running:
            controller.answers = [error] * 2
            partition = lead(ALONE, running.add)
            for _ in range(100):
                fetch(partition, 2, 0)
                await asyncio.sleep(0.009)
            assert len(controller.requests) == 2
            await asyncio.sleep(1)
            assert partition.state.isr == (1, 2)

    run_virtual(main())


def test_a_proposal_in_a_leader_epoch_that_is_over_ends_the_leadership(changes, lead, fetch, controller):
    """The controller knows a later epoch, so another leader may have started."""

    async def main():
        async with changes() as running:
            controller.answers = [ErrorCode.FENCED_LEADER_EPOCH]
            partition = lead(ALONE, running.add)
            ended = lead.ended
            fetch(partition, 2, 0)
            await asyncio.sleep(1)
            assert not partition.is_leader
            assert ended == [partition]
            partition.update(ALONE._replace(leader_epoch=6, partition_epoch=8))
            assert partition.is_leader

    run_virtual(main())


def test_a_stale_broker_epoch_is_told_with_the_epoch_that_asked(lead, fetch, controller):
    async def main():
        stale = []
        view = view_in(77)

        async def send(request):
            view.broker_epoch = 78  # before the answer
            return await controller.send(request)

        changes = IsrChanges(view, send, stale.append)
        controller.answers = [KafkaError(ErrorCode.STALE_BROKER_EPOCH)]
        partition = lead(ALONE, changes.add)
        fetch(partition, 2, 0)
        await asyncio.sleep(1)
        assert stale == [77]
        await changes.stop()

    run_virtual(main())


def test_a_follower_that_joins_while_a_proposal_is_refused_waits_as_well(changes, lead, fetch, controller):
    async def main():
        failures = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
        async with changes() as running:
            controller.answers = [ErrorCode.INELIGIBLE_REPLICA] * 2
            partition = lead(ALONE, running.add)
            fetch(partition, 2, 0)
            await asyncio.sleep(0.005)
            running.add(partition)  # as a check does
            await asyncio.sleep(0.3)
            assert len(controller.requests) == 1
            await asyncio.sleep(2)
            assert partition.state.isr == (1, 2)
            assert failures == []

    run_virtual(main())


def test_after_the_stop_nothing_is_sent(changes, lead, fetch, controller):
    async def main():
        async with changes() as running:
            partition = lead(ALONE, running.add)
        fetch(partition, 2, 0)
        await asyncio.sleep(1)
        assert controller.requests == []

    run_virtual(main())


@pytest.fixture
def fill(monkeypatch):
    """Let the disk of a partition be full."""

    def fill(partition):
        def full(*_, **__):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")

        monkeypatch.setattr(type(partition.log), "append_as_leader", full)

    return fill


def test_leader_that_can_write_no_more_asks_to_leave(changes, lead, append, fill, controller):
    async def main():
        async with changes() as running:
            partition = lead(ALONE._replace(isr=(1, 2)), running.add)
            fill(partition)
            controller.answers = [ErrorCode.NEW_LEADER_ELECTED]
            with pytest.raises(KafkaError, match="no space left"):
                append(partition)
            await asyncio.sleep(1)
            assert [r.topics[0].partitions[0].new_isr for r in controller.requests] == [[2]]

    run_virtual(main())


def test_follower_that_can_write_no_more_asks_to_leave(changes, lead, controller):
    async def main():
        async with changes() as running:
            partition = lead(ALONE._replace(leader=2, isr=(1, 2, 3)), running.add)
            partition.leave_in_sync()
            await asyncio.sleep(1)
            assert [r.topics[0].partitions[0].new_isr for r in controller.requests] == [[2, 3]]

    run_virtual(main())


def test_request_to_leave_that_gets_no_answer_is_sent_again(changes, lead, controller):
    async def main():
        async with changes() as running:
            partition = lead(ALONE._replace(isr=(1, 2)), running.add)
            controller.answers = [KafkaError(ErrorCode.NOT_CONTROLLER), ErrorCode.NEW_LEADER_ELECTED]
            partition.leave_in_sync()
            await asyncio.sleep(5)
            assert [r.topics[0].partitions[0].new_isr for r in controller.requests] == [[2], [2]]

    run_virtual(main())


def test_leader_whose_log_is_offline_asks_to_leave_until_another_replica_can_lead(changes, lead, controller):
    """A coordinator appends nothing to such a log, so no failed append asks again."""

    async def main():
        async with changes() as running:
            partition = lead(ALONE._replace(isr=(1, 2)), running.add)
            controller.answers = [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.NEW_LEADER_ELECTED]
            partition.log.fail(OSError("an fsync failed"))
            partition.leave_in_sync()
            await asyncio.sleep(5)
            partition.check_in_sync()  # as the broker does periodically
            await asyncio.sleep(5)
            assert [r.topics[0].partitions[0].new_isr for r in controller.requests] == [[2], [2]]

    run_virtual(main())


def test_last_replica_in_sync_stays_though_it_can_write_no_more(changes, lead, append, fill, controller):
    async def main():
        async with changes() as running:
            partition = lead(ALONE, running.add)
            fill(partition)
            with pytest.raises(KafkaError, match="no space left"):
                append(partition)
            await asyncio.sleep(1)
            assert controller.requests == []

    run_virtual(main())
