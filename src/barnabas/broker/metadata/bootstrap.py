"""Creates the nodes that a cluster needs before the first login: the login secret and the first users."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from random import Random
from types import MappingProxyType
from typing import TypeAlias

from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.store import BadVersionError, MetadataStore, NodeExistsError
from barnabas.kafka.security.scram import MIN_ITERATIONS, Mechanism, derive

#: by user, the stored credential for each name of a SCRAM mechanism
Users: TypeAlias = Mapping[str, Mapping[str, str]]
NO_USERS: Users = MappingProxyType({})


def credentials(password: str, salt: bytes) -> dict[str, str]:
    """Return the credential to store for a password, by SCRAM mechanism. This takes milliseconds of CPU."""
    return {
        mechanism.text: derive(mechanism, password, salt, MIN_ITERATIONS).encode() for mechanism in Mechanism
    }


async def add_missing_users(store: MetadataStore, users: Users) -> None:
    """Store the credentials of each of `users` that has no node in the store. Existing nodes do not change.

    Raises:
        StoreError: the store cannot be reached.
    """
    for user, texts in sorted(users.items()):
        with contextlib.suppress(NodeExistsError):
            await store.create(znodes.user_config(user), znodes.encode_config(texts))


_BYTES = 32


async def login_secret(store: MetadataStore, random: Random) -> bytes:
    """Return the cluster's login secret. Create it if the store has none.

    Brokers derive the salts of unknown users from this secret.

    Raises:
        StoreError: the store cannot be reached.
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
