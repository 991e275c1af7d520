"""The first users of a new cluster: stored before any login, and not changed by later starts."""

from __future__ import annotations

import asyncio

from simulation.environment import simulated_environment
from simulation.memory_store import MemoryStore

from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.bootstrap import add_missing_users, credentials
from barnabas.broker.metadata.opening import prepare
from barnabas.kafka.security.scram import Mechanism, ScramCredential, derive


def test_a_credential_of_each_mechanism_is_that_of_the_password() -> None:
    texts = credentials("secret", b"a salt of 16 b..")
    assert texts.keys() == {mechanism.text for mechanism in Mechanism}
    for mechanism in Mechanism:
        found = ScramCredential.decode(texts[mechanism.text])
        assert found == derive(mechanism, "secret", b"a salt of 16 b..", found.iterations)


def test_a_password_that_was_changed_since_stays_and_a_missing_user_is_added() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await prepare(store, simulated_environment().random)
        await add_missing_users(store, {"ann": {"SCRAM-SHA-256": "first"}})
        changed = znodes.encode_config({"SCRAM-SHA-256": "changed"})
        await store.set(znodes.user_config("ann"), changed)
        await add_missing_users(store, {"ann": {"SCRAM-SHA-256": "first"}, "bob/1": {"SCRAM-SHA-512": "his"}})
        stored = {user: (await store.get(znodes.user_config(user))).data for user in ("ann", "bob/1")}
        assert znodes.decode_config(stored["ann"]) == {"SCRAM-SHA-256": "changed"}
        assert znodes.decode_config(stored["bob/1"]) == {"SCRAM-SHA-512": "his"}
        await store.close()

    asyncio.run(scenario())
