"""The level of a feature rises only when every broker supports it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from simulation.memory_store import MemoryServer, MemoryStore
from tests.unit.broker.controller.conftest import Member, broker_image, join

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.config import BrokerConfig
from barnabas.broker.controller import FeatureUpdate, NewTopic
from barnabas.broker.controller.features import UpgradeType
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.features import SUPPORTED, TRANSACTION_VERSION, FinalizedFeatures

ALL = {name: (feature.lowest, feature.highest) for name, feature in SUPPORTED.items()}
OLD = {**ALL, TRANSACTION_VERSION: (0, 1)}


def play(scenario: Any) -> None:
    async def session() -> None:
        server = MemoryServer()
        member = await join(server, BrokerConfig(node_id=1), features=ALL)
        await scenario(server, member)

    asyncio.run(session())


async def alive(server: MemoryServer, broker: int, features: Any) -> MemoryStore:
    store = MemoryStore(server)
    node = znodes.encode_broker(broker_image(broker)._replace(features=features), 0)
    await store.create(znodes.broker(broker), node, ephemeral=True)
    return store


async def update(member: Member, level: int, kind: UpgradeType) -> None:
    await member.controller.features.update([FeatureUpdate(TRANSACTION_VERSION, level, kind)])


def test_a_level_that_one_broker_lacks_is_refused_until_that_is_upgraded() -> None:
    async def scenario(server: MemoryServer, member: Member) -> None:
        await update(member, 1, UpgradeType.SAFE_DOWNGRADE)
        old = await alive(server, 2, OLD)
        with pytest.raises(KafkaError, match="broker 2 supports levels 0 to 1") as refused:
            await update(member, 2, UpgradeType.UPGRADE)
        assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
        assert member.image.features.level(TRANSACTION_VERSION) == 1
        await old.close()
        await alive(server, 2, ALL)
        await update(member, 2, UpgradeType.UPGRADE)
        assert member.image.features.level(TRANSACTION_VERSION) == 2

    play(scenario)


def test_nothing_rises_while_a_broker_with_replicas_is_away() -> None:
    async def scenario(server: MemoryServer, member: Member) -> None:
        await update(member, 1, UpgradeType.SAFE_DOWNGRADE)
        other = await alive(server, 2, ALL)
        await member.controller.topics.create([NewTopic("t", assignments=[(0, [1, 2])])])
        await other.close()
        with pytest.raises(KafkaError, match="broker 2 is away"):
            await update(member, 2, UpgradeType.UPGRADE)

    play(scenario)


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        ({}, None),
        ({TRANSACTION_VERSION: 2}, None),
        ({"later.version": 0}, None),
        ({TRANSACTION_VERSION: 3}, "transaction.version at level 3 (this version has 0 to 2)"),
        ({"later.version": 1}, "later.version at level 1 (this version has 0 to 0)"),
    ],
)
def test_a_broker_knows_what_it_is_too_old_for(levels: dict[str, int], words: str | None) -> None:
    assert FinalizedFeatures(levels).unsupported() == words
