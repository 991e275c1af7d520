"""After any changes, an image that followed them step by step is equal to one that is read at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from simulation.memory_store import MemoryServer, MemoryStore
from tests.effort import examples
from tests.unit.broker.controller.conftest import Member, join

from barnabas.broker.config import BrokerConfig
from barnabas.broker.controller import ConfigChange, ConfigResource, NewPartitions, NewTopic
from barnabas.broker.metadata import MetadataLoader

NAMES = st.sampled_from(["a", "b.c", "b_c", "d", "", "no good"])
Step = Callable[[Member], Awaitable[object]]


def create(name: str, partitions: int, replicas: int, retention: str | None) -> Step:
    configs = {} if retention is None else {"retention.ms": retention}
    topic = NewTopic(name, partitions, replicas, configs=configs)
    return lambda member: member.controller.topics.create([topic])


def grow(name: str, total: int) -> Step:
    return lambda member: member.controller.topics.create_partitions([NewPartitions(name, total)])


def delete(name: str) -> Step:
    async def step(member: Member) -> None:
        topic = member.image.topics.get(name)
        await member.controller.topics.delete([topic.id if topic else bytes(16)])

    return step


def alter(resource: ConfigResource, change: ConfigChange) -> Step:
    return lambda member: member.controller.configs.alter({resource: [change]})


RESOURCES = st.one_of(
    st.builds(ConfigResource, st.just(2), NAMES),
    st.builds(ConfigResource, st.just(4), st.sampled_from(["", "1", "2", "x"])),
)
CHANGES = st.builds(
    ConfigChange,
    st.sampled_from(["retention.ms", "log.retention.ms", "cleanup.policy", "log.cleanup.policy", "no.such"]),
    st.integers(0, 4),
    st.sampled_from(["5", "compact", "nonsense", None]),
)
STEPS = st.one_of(
    st.builds(create, NAMES, st.integers(-1, 4), st.integers(-1, 3), st.sampled_from([None, "5", "soon"])),
    st.builds(grow, NAMES, st.integers(0, 6)),
    st.builds(delete, NAMES),
    st.builds(alter, RESOURCES, CHANGES),
)


@settings(max_examples=examples(60, 1000), deadline=None)
@given(st.lists(st.lists(STEPS, min_size=1, max_size=4), max_size=10), st.booleans())
def test_followed_image_is_the_one_a_newcomer_reads(rounds: list[list[Step]], alone: bool) -> None:
    asyncio.run(_compare(rounds, alone))


async def _compare(rounds: list[list[Step]], alone: bool) -> None:
    server = MemoryServer()
    member = await join(server, BrokerConfig(node_id=1))
    if not alone:
        await join(server, BrokerConfig(node_id=2))
    for steps in rounds:
        await asyncio.gather(*(step(member) for step in steps))
        newcomer = MetadataLoader(MemoryStore(server))
        await newcomer.start()
        image = await member.loader.settled()
        assert image == newcomer.image
        assert {topic.id: topic.name for topic in image.topics.values()} == dict(image.topic_names)
        assert {*image.topic_configs} <= {*image.topics}
        for topic in image.topics.values():
            assert all(state.leader in state.isr for state in topic.partitions)
