"""A real ZooKeeper for tests, and stores on it."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from barnabas.metadata.zookeeper.address import ZooKeeperAddress, parse_address
from barnabas.metadata.zookeeper.store import ZooKeeperStore

_numbers = itertools.count()

#: seconds; long enough for a machine that stands still for a while
PATIENT = 30.0


def new_chroot(server: str) -> ZooKeeperAddress:
    """A part of the tree at ``host:port`` that nobody has used."""
    return parse_address(f"{server}/test-{os.getpid()}-{next(_numbers)}")


@asynccontextmanager
async def opened(
    address: ZooKeeperAddress, session_timeout: float = PATIENT
) -> AsyncIterator[ZooKeeperStore]:
    """A store at `address`, closed at the end."""
    store = await ZooKeeperStore.open(address, session_timeout=session_timeout, connection_timeout=PATIENT)
    try:
        yield store
    finally:
        await store.close()
