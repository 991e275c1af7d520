"""The cluster forgets a permanently lost broker. If the broker comes back, it registers again."""

from __future__ import annotations

import pytest
from tests.unit.broker.controller.conftest import Member, Play
from tests.unit.broker.controller.test_partitions import Cluster
from tests.unit.broker.controller.test_partitions import play as play_cluster
from tests.unit.broker.controller.test_topics import _two_of_three as two_of_three

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.controller import NewTopic
from barnabas.broker.metadata.image import TopicImage


async def refusal(member: Member, broker: int) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        await member.controller.unregistration.unregister(broker)
    return refused.value.code


def test_broker_that_was_forgotten_gets_no_new_replicas() -> None:
    async def scenario(member: Member) -> None:
        made = await member.controller.topics.create([NewTopic("before", 1, 3)])
        assert isinstance(made["before"], TopicImage)
        await member.controller.unregistration.unregister(3)
        assert member.image.admitted.keys() == {1, 2}
        refused = (await member.controller.topics.create([NewTopic("after", 1, 3)]))["after"]
        assert isinstance(refused, KafkaError)
        assert refused.code is ErrorCode.INVALID_REPLICATION_FACTOR
        assert 3 in member.image.topics["before"].partitions[0].replicas
        assert await refusal(member, 3) is ErrorCode.BROKER_ID_NOT_REGISTERED

    two_of_three(scenario)


def test_brokers_that_are_alive_or_unknown_are_refused(play: Play) -> None:
    async def scenario(member: Member) -> None:
        assert await refusal(member, 1) is ErrorCode.INVALID_REQUEST
        assert await refusal(member, 2) is ErrorCode.INVALID_REQUEST
        assert await refusal(member, 7) is ErrorCode.BROKER_ID_NOT_REGISTERED

    play(scenario, others=1)


def test_only_the_controller_forgets_a_broker() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.stop(3)
        follower = next(each for each in cluster.members.values() if not each.controller.active)
        assert await refusal(follower, 3) is ErrorCode.NOT_CONTROLLER

    play_cluster(scenario)


def test_broker_that_comes_back_registers_anew_and_is_not_trusted_by_its_earlier_life() -> None:
    """It stopped cleanly as an eligible leader replica, but its epoch is not known any more."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.make_topic((1, 3), min_isr=2)
        epoch = await cluster.stop(3)
        await cluster.has(isr=(1,), elr=(3,))
        await cluster.controller.controller.unregistration.unregister(3)
        await cluster.has(isr=(1,), elr=(3,))
        await cluster.start(3, previous_epoch=epoch)
        await cluster.has(isr=(1,), elr=())
        assert 3 in cluster.controller.image.admitted

    play_cluster(scenario)
