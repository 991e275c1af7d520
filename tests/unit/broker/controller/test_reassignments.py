"""The controller moves partitions to other brokers, and the next controller continues the moves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from simulation.memory_store import MemoryServer, MemoryStore
from tests.unit.broker.controller.conftest import Member, Play, broker_image, join

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.config import BrokerConfig
from barnabas.broker.controller import NewPartitions, NewTopic
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.image import PartitionState

T0 = TopicPartition("t", 0)


def state(member: Member, partition: TopicPartition = T0) -> PartitionState:
    found = member.image.partition(partition)
    assert found is not None
    return found


async def create(member: Member, *replicas: list[int], **configs: str) -> None:
    topic = NewTopic("t", assignments=list(enumerate(replicas)), configs=dict(configs))
    made = (await member.controller.topics.create([topic]))["t"]
    assert not isinstance(made, KafkaError), made


async def move(member: Member, *target: int, **options: Any) -> ErrorCode:
    errors = await member.controller.reassignments.alter({T0: target}, **options)
    return errors[T0].code if errors else ErrorCode.NONE


async def cancel(member: Member) -> ErrorCode:
    errors = await member.controller.reassignments.alter({T0: None})
    return errors[T0].code if errors else ErrorCode.NONE


async def in_sync(member: Member, *isr: int, partition: TopicPartition = T0) -> None:
    """Change the ISR, as the leader does."""
    before = state(member, partition)
    data = znodes.encode_partition_state(before._replace(isr=isr), 1)
    await member.store.set(znodes.partition_state(*partition), data, before.partition_epoch)
    for _ in range(5):  # what the controller makes of it
        await asyncio.sleep(0)
        await member.loader.settled()


def test_a_partition_moves_when_its_new_replicas_are_in_sync_and_not_before(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await create(member, [1, 2])
        assert await move(member, 3, 4) is ErrorCode.NONE
        begun = state(member)
        assert (begun.replicas, begun.adding, begun.removing) == ((3, 4, 1, 2), (3, 4), (1, 2))
        assert (begun.isr, begun.leader, begun.leader_epoch) == ((1, 2), 1, 0)
        await in_sync(member, 1, 2, 3)
        assert state(member).removing == (1, 2)
        await in_sync(member, 1, 2, 3, 4)
        done = state(member)
        assert (done.replicas, done.isr, done.adding, done.removing) == ((3, 4), (3, 4), (), ())
        assert (done.leader, done.leader_epoch) == (3, 1)
        assert begun.partition_epoch < done.partition_epoch

    play(scenario, others=3)


def test_a_replica_goes_in_a_new_leader_epoch(play: Play) -> None:
    """Simulation seed 71071: a replica came back empty before its leader knew that it had been removed.

    The leader counted its earlier fetches and added it to the ISR.
    """

    async def scenario(member: Member) -> None:
        await create(member, [1, 2])
        await move(member, 1, 3)
        assert state(member).leader_epoch == 0
        await in_sync(member, 1, 2, 3)
        done = state(member)
        assert (done.replicas, done.leader, done.leader_epoch) == ((1, 3), 1, 1)
        await move(member, 1, 3, 2)
        assert state(member).leader_epoch == 1

    play(scenario, others=2)


def test_another_order_is_taken_at_once_and_moves_no_leader(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await create(member, [1, 2])
        before = state(member)
        assert await move(member, 2, 1) is ErrorCode.NONE
        assert state(member) == before._replace(replicas=(2, 1), partition_epoch=before.partition_epoch + 1)

    play(scenario, others=1)


def test_fewer_replicas_are_left_at_once_when_they_are_in_sync(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await create(member, [1, 2, 3])
        assert await move(member, 2, 3) is ErrorCode.NONE
        done = state(member)
        assert (done.replicas, done.isr, done.leader, done.removing) == ((2, 3), (2, 3), 2, ())

    play(scenario, others=2)


def test_where_a_partition_is_already_nothing_is_written(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await create(member, [1, 2])
        before = state(member)
        assert await move(member, 1, 2) is ErrorCode.NONE
        assert state(member) == before

    play(scenario, others=1)


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([-1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_move_to_nowhere_is_refused(play: Play, target: list[int], code: ErrorCode) -> None:
    async def scenario(member: Member) -> None:
        await create(member, [1, 2])
        before = member.image
        assert await move(member, *target) is code
        assert member.image.topics == before.topics

    play(scenario, others=1)


@pytest.mark.parametrize(
    "partition", [TopicPartition("t", 1), TopicPartition("t", -1), TopicPartition("u", 0)]
)
def test_a_partition_that_is_not_there_is_not_moved_and_others_are(
    play: Play, partition: TopicPartition
) -> None:
    async def scenario(member: Member) -> None:
        await create(member, [1])
        errors = await member.controller.reassignments.alter({partition: [1], T0: [2]})
        assert {key: error.code for key, error in errors.items()} == {
            partition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
        assert state(member).adding == (2,)

    play(scenario, others=1)


def test_a_number_of_replicas_that_is_to_stay_stays(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await create(member, [1, 2])
        assert await move(member, 1, may_change_factor=False) is ErrorCode.INVALID_REPLICATION_FACTOR
        assert await move(member, 1, 3, may_change_factor=False) is ErrorCode.NONE
        assert await move(member, 2, 3, 1, may_change_factor=False) is ErrorCode.INVALID_REPLICATION_FACTOR

    play(scenario, others=2)


def test_a_move_is_cancelled_once(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await create(member, [1, 2])
        before = state(member)
        await move(member, 1, 3)
        assert await cancel(member) is ErrorCode.NONE
        after = state(member)
        assert after == before._replace(partition_epoch=after.partition_epoch, leader_epoch=1)
        assert await cancel(member) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

    play(scenario, others=2)


def test_replicas_on_a_broker_that_is_away_may_stay_there_but_none_may_go_there(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await create(member, [1, 2])
        await member.store.delete(znodes.broker(2))
        await member.loader.settled()
        assert await move(member, 1, 2, 3) is ErrorCode.NONE
        assert await move(member, 1, 4) is ErrorCode.INVALID_REPLICA_ASSIGNMENT

    play(scenario, others=2)


async def forget(member: Member, broker: int) -> None:
    """Kill a broker and unregister it."""
    await member.store.delete(znodes.broker(broker))
    await member.loader.settled()
    await member.controller.unregistration.unregister(broker)


def test_a_move_away_from_an_unregistered_broker_ends(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await create(member, [1, 2])
        assert await move(member, 1, 3) is ErrorCode.NONE
        await in_sync(member, 1)
        await forget(member, 2)
        assert state(member).removing == (2,)
        await in_sync(member, 1, 3)
        assert (state(member).replicas, state(member).removing) == ((1, 3), ())

    play(scenario, others=2)


def test_a_move_to_an_unregistered_broker_waits_until_it_is_cancelled(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await create(member, [1, 2])
        assert await move(member, 1, 3) is ErrorCode.NONE
        await forget(member, 3)
        waiting = state(member)
        assert (waiting.replicas, waiting.adding, waiting.isr) == ((1, 3, 2), (3,), (1, 2))
        assert await cancel(member) is ErrorCode.NONE
        assert (state(member).replicas, state(member).isr) == ((1, 2), (1, 2))
        assert await move(member, 1, 3) is ErrorCode.INVALID_REPLICA_ASSIGNMENT

    play(scenario, others=2)


def test_partitions_added_meanwhile_have_as_many_replicas_as_there_will_be(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await create(member, [1, 2])
        await move(member, 3, 4)
        assert not await member.controller.topics.create_partitions([NewPartitions("t", 2)])
        assert len(state(member, TopicPartition("t", 1)).replicas) == 2
        assert state(member).adding == (3, 4)

    play(scenario, others=3)


def test_many_partitions_of_a_topic_move_in_several_transactions(play: Play) -> None:
    async def scenario(member: Member) -> None:
        await create(member, *[[1]] * 900)
        moves = {TopicPartition("t", number): [2] for number in range(900)}
        assert await member.controller.reassignments.alter(moves) == {}
        assert {each.adding for each in member.image.topics["t"].partitions} == {(2,)}

    play(scenario, others=1)


def test_the_next_controller_finishes_what_the_last_one_began() -> None:
    async def scenario() -> None:
        server = MemoryServer()
        first = await join(server, BrokerConfig(node_id=1))
        for number in (2, 3):
            node = znodes.encode_broker(broker_image(number), 0)
            await MemoryStore(server).create(znodes.broker(number), node, ephemeral=True)
        await create(first, [2])
        await move(first, 3)
        await first.controller.stop()
        await in_sync(first, 2, 3)
        assert state(first).removing == (2,)
        second = await join(server, BrokerConfig(node_id=4), start=False)
        await first.store.close()
        await second.controller.start()
        for _ in range(5):
            await asyncio.sleep(0)
            await second.loader.settled()
        assert state(second).replicas == (3,)
        assert state(second).leader == 3

    asyncio.run(scenario())
