"""Repeats what a broken connection to the metadata store has interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from barnabas.base.text import logger_of
from barnabas.broker.metadata.session import FINAL
from barnabas.broker.metadata.store import MetadataStore, SessionState, StoreUnavailableError

log = logger_of(__name__)

T = TypeVar("T")

#: between two attempts while the store claims to be connected, in seconds
_RETRY = 0.05


async def persistently(store: MetadataStore, attempt: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `attempt`; repeat it when a broken connection is back.

    Args:
        store: what `attempt` uses.
        attempt: only reads, or finds out what an earlier call has written.

    Raises:
        StoreUnavailableError: the store is away for longer than its session timeout, from the first break
            on, or does not come back. A store in this process is never waited for.
    """
    loop = asyncio.get_running_loop()
    deadline: float | None = None
    news = asyncio.Event()
    cancel = store.on_state(lambda _: news.set())
    try:
        while True:
            news.clear()
            try:
                return await attempt()
            except StoreUnavailableError as error:
                if deadline is None:  # however long the attempt took until then
                    deadline = loop.time() + store.session_timeout
                if store.state in FINAL or loop.time() >= deadline:
                    raise
                log.info("beginning again when the metadata store answers: %s", error)
                try:
                    async with asyncio.timeout_at(deadline):
                        while store.state is not SessionState.CONNECTED and store.state not in FINAL:
                            await news.wait()
                            news.clear()
                        await asyncio.sleep(_RETRY)
                except TimeoutError:
                    raise error from None
    finally:
        cancel()
