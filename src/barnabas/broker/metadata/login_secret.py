"""The secret of a cluster from which its brokers make up the credentials of unknown users."""

from __future__ import annotations

import contextlib
from random import Random

from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.store import BadVersionError, MetadataStore, NodeExistsError

_BYTES = 32


async def login_secret(store: MetadataStore, random: Random) -> bytes:
    """Read the cluster's secret; the first broker makes it.

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
