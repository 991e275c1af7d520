"""Internal topics that a single broker created get more replicas when more brokers join."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from simulation.clocks import ManualClock
from simulation.memory_store import MemoryServer
from tests.unit.broker.controller.conftest import Member, join, until

from barnabas.base.errors import KafkaError
from barnabas.base.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from barnabas.broker.config import BrokerConfig
from barnabas.broker.controller import NewTopic
from barnabas.broker.controller.internal_topics import InternalTopics
from barnabas.broker.controller.reassignment import target_of
from barnabas.broker.view import MutableView

INTERNAL = (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC)


def config(node_id: int, **settings: Any) -> BrokerConfig:
    return BrokerConfig(node_id=node_id, zookeeper_connect="zk:2181", **settings)


async def create(member: Member, *names: str) -> None:
    made = await member.controller.topics.create([NewTopic(name, 6, 1) for name in names])
    assert not any(isinstance(each, KafkaError) for each in made.values())


def replicas(member: Member, name: str) -> list[tuple[int, ...]]:
    return [state.replicas for state in member.image.topics[name].partitions]


async def leave(*members: Member) -> None:
    for member in members:
        await member.controller.stop()
        await member.loader.stop()


@pytest.mark.parametrize("racks", [("a", "b", "c"), (None, None, None)])
def test_internal_topics_grow_with_the_cluster_and_other_topics_do_not(racks: tuple[str | None, ...]) -> None:
    async def scenario() -> None:
        server = MemoryServer()
        first = await join(server, config(1), rack=racks[0])
        await create(first, *INTERNAL, "orders")
        second = await join(server, config(2), rack=racks[1])
        for name in INTERNAL:
            await until(lambda name=name: {len(each) for each in replicas(first, name)} == {2})
        # What is being added is not in sync here, where nobody copies: the next step has to wait for it.
        assert {state.adding for state in first.image.topics[GROUP_METADATA_TOPIC].partitions} == {(2,)}
        assert set(replicas(first, "orders")) == {(1,)}
        await leave(first, second)

    asyncio.run(scenario())


def test_two_more_brokers_share_what_is_added() -> None:
    async def scenario() -> None:
        server = MemoryServer()
        others = [await join(server, config(each)) for each in (2, 3, 4)]
        boss = others[0]
        made = await boss.controller.topics.create(
            [NewTopic(GROUP_METADATA_TOPIC, assignments=[(number, [2]) for number in range(4)])]
        )
        assert not isinstance(made[GROUP_METADATA_TOPIC], KafkaError)
        await until(lambda: {len(each) for each in replicas(boss, GROUP_METADATA_TOPIC)} == {3})
        held = [each for state in replicas(boss, GROUP_METADATA_TOPIC) for each in state]
        assert sorted(held) == [2] * 4 + [3] * 4 + [4] * 4
        await leave(*others)

    asyncio.run(scenario())


def test_a_replication_factor_that_was_set_is_left_alone() -> None:
    async def scenario() -> None:
        server = MemoryServer()
        own = {"offsets_topic_replication_factor": 1}
        first = await join(server, config(1, **own))
        await create(first, *INTERNAL)
        second = await join(server, config(2, **own))
        await until(lambda: {len(each) for each in replicas(first, TRANSACTION_STATE_TOPIC)} == {2})
        assert set(replicas(first, GROUP_METADATA_TOPIC)) == {(1,)}
        await leave(first, second)

    asyncio.run(scenario())


def test_a_reassignment_that_begins_meanwhile_is_not_replaced() -> None:
    async def scenario() -> None:
        server = MemoryServer()
        fixed = {"offsets_topic_replication_factor": 1}
        first = await join(server, config(1, **fixed))
        await create(first, GROUP_METADATA_TOPIC)
        second = await join(server, config(2, **fixed))
        await until(lambda: len(first.image.brokers) == 2)
        reassignments = first.controller.reassignments
        view = MutableView(config(1), ManualClock())
        view.follow(first.loader)
        growing = InternalTopics(lambda: True, view, reassignments.alter_by)
        chosen = {TopicPartition(GROUP_METADATA_TOPIC, 0): (2, 1)}
        async with reassignments._writes.lock:  # another decision is being made
            users = asyncio.ensure_future(reassignments.alter(chosen))
            await asyncio.sleep(0)
            growing.begin()
            for _ in range(10):
                await asyncio.sleep(0)
            assert not users.done()
        assert await users == {}
        await until(lambda: {len(each) for each in replicas(first, GROUP_METADATA_TOPIC)} == {2})
        targets = [target_of(state) for state in first.image.topics[GROUP_METADATA_TOPIC].partitions]
        assert targets == [(2, 1), *[(1, 2)] * 5]
        await growing.stop()
        await leave(first, second)

    asyncio.run(scenario())


def test_the_next_controller_goes_on_with_what_the_last_one_did_not_begin() -> None:
    async def scenario() -> None:
        server = MemoryServer()
        fixed = {"offsets_topic_replication_factor": 1}
        first = await join(server, config(1, **fixed))
        await create(first, GROUP_METADATA_TOPIC)
        second = await join(server, config(2))
        assert set(replicas(first, GROUP_METADATA_TOPIC)) == {(1,)}
        await first.controller.stop()
        server_controller = first.store
        await server_controller.close()
        third = await join(server, config(3))
        await until(lambda: second.controller.active)
        await until(lambda: {len(each) for each in replicas(second, GROUP_METADATA_TOPIC)} >= {2})
        await leave(second, third)

    asyncio.run(scenario())
