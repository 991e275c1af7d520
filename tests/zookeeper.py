"""A real ZooKeeper for tests, and stores on it."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from barnabas.broker.metadata.store import MetadataStore, SessionState
from barnabas.broker.metadata.zookeeper.address import ZooKeeperAddress, parse_address
from barnabas.broker.metadata.zookeeper.store import ZooKeeperStore

_numbers = itertools.count()

#: seconds; long enough for a machine that stands still for a while
PATIENT = 60.0


def new_chroot(server: str) -> ZooKeeperAddress:
    """Return the address ``host:port/chroot`` of an unused part of the tree."""
    return parse_address(f"{server}/test-{os.getpid()}-{next(_numbers)}")


@asynccontextmanager
async def opened(
    address: ZooKeeperAddress, session_timeout: float = PATIENT
) -> AsyncIterator[ZooKeeperStore]:
    """Open a store at `address`, and close it at the end."""
    store = await ZooKeeperStore.open(address, session_timeout=session_timeout, connection_timeout=PATIENT)
    try:
        yield store
    finally:
        await store.close()


async def until(store: MetadataStore, *wanted: SessionState) -> SessionState:
    """Wait until the session is in one of the states, and return the state."""
    reached: asyncio.Future[SessionState] = asyncio.get_running_loop().create_future()

    def on_state(state: SessionState) -> None:
        if state in wanted and not reached.done():
            reached.set_result(state)

    cancel = store.on_state(on_state)
    try:
        if store.state in wanted:
            return store.state
        return await asyncio.wait_for(reached, PATIENT)
    finally:
        cancel()


async def until_true(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true that other threads or processes change."""
    async with asyncio.timeout(PATIENT):
        while not condition():
            await asyncio.sleep(0.005)
