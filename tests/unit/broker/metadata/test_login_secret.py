"""The cluster's secret from which brokers make salts for unknown users."""

from __future__ import annotations

import asyncio
from random import Random

from simulation.memory_store import MemoryStore

from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.bootstrap import login_secret
from barnabas.broker.metadata.opening import prepare


def test_brokers_that_start_at_once_agree_on_one_secret() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await prepare(store, Random(1))
        found = await asyncio.gather(*(login_secret(store, Random(seed)) for seed in range(5)))
        assert len(set(found)) == 1 and len(found[0]) >= 32
        assert await login_secret(store, Random(9)) == found[0]

    asyncio.run(scenario())


def test_clusters_have_secrets_of_their_own() -> None:
    async def made(seed: int) -> bytes:
        store = MemoryStore()
        await prepare(store, Random(seed))
        return await login_secret(store, Random(seed))

    assert asyncio.run(made(1)) != asyncio.run(made(2))


def test_a_secret_that_was_emptied_is_made_anew() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await prepare(store, Random(1))
        before = await login_secret(store, Random(1))
        await store.set(znodes.LOGIN_SECRET, b"")
        after = await login_secret(store, Random(2))
        assert len(after) >= 32 and after != before
        assert await login_secret(store, Random(3)) == after

    asyncio.run(scenario())


def test_only_brokers_may_read_the_secret() -> None:
    assert znodes.is_secret(znodes.LOGIN_SECRET)
    assert not znodes.is_secret(znodes.CLUSTER_ID)
