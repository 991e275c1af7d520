"""Creates the nodes that a cluster needs before the first login: its secret and its first users."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from random import Random
from types import MappingProxyType
from typing import TypeAlias

from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.store import BadVersionError, MetadataStore, NodeExistsError
from barnabas.kafka.security.scram import MIN_ITERATIONS, Mechanism, derive

#: what is stored of each: a credential by the name of its mechanism
Users: TypeAlias = Mapping[str, Mapping[str, str]]
NO_USERS: Users = MappingProxyType({})


def credentials(password: str, salt: bytes) -> dict[str, str]:
    """Return the stored credential of a password for each mechanism. This takes milliseconds of CPU time."""
    return {
        mechanism.text: derive(mechanism, password, salt, MIN_ITERATIONS).encode() for mechanism in Mechanism
    }


async def add_missing_users(store: MetadataStore, users: Users) -> None:
    """Store the credentials of those `users` that have none. A password that was changed stays.

    Raises:
        StoreError: the store is out of reach.
    """
    for user, texts in sorted(users.items()):
        with contextlib.suppress(NodeExistsError):
            await store.create(znodes.user_config(user), znodes.encode_config(texts))


_BYTES = 32


async def login_secret(store: MetadataStore, random: Random) -> bytes:
    """Read the cluster's secret. The first broker creates it.

    Raises:
        StoreError: the store is out of reach.
    """
    while True:
        node = await store.exists(znodes.LOGIN_SECRET)
        if node is not None and len(node.data) >= _BYTES:
            return node.data
        made = random.randbytes(_BYTES).hex().encode()  # text, as all nodes are
        with contextlib.suppress(NodeExistsError, BadVersionError):  # another broker was first
            if node is None:
                await store.create(znodes.LOGIN_SECRET, made)
            else:
                await store.set(znodes.LOGIN_SECRET, made, node.version)
