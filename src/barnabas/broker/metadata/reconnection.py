"""Operations on the metadata store that continue after a broken connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from barnabas.base.text import logger_of
from barnabas.broker.metadata.session import FINAL
from barnabas.broker.metadata.store import (
    BadVersionError,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    SessionState,
    StoreNode,
    StoreUnavailableError,
)
from barnabas.broker.metadata.wait_limit import WaitLimit

log = logger_of(__name__)

T = TypeVar("T")

#: between two attempts while the store claims to be connected, in seconds
_RETRY = 0.05


async def persistently(store: MetadataStore, attempt: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `attempt`. If it raises StoreUnavailableError, repeat it after a reconnection.

    Any other exception of `attempt` is raised at once.

    Args:
        store: store that `attempt` uses.
        attempt: called without arguments, and awaited, once or more. If `attempt` writes, it must first find
            out what an earlier call has written.

    Raises:
        StoreUnavailableError: the store is closed, can never be reached again, or could not be reached for
            the session timeout. For a store in this process, the first failure is raised.
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
                log.info("trying again when the metadata store answers: %s", error)
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


async def claim(store: MetadataStore, path: str, data: Callable[[], bytes], *, timeout_s: float) -> StoreNode:
    """Create an ephemeral node at `path`. Wait until this session owns a node there.

    - If this session already owns a node at `path`, write `data` to this node. This happens if the response
      to an earlier creation was lost.
    - If the result of `data` changes meanwhile, write it, too: the returned node has the latest data.
    - If another session owns a node at `path`, wait until ZooKeeper deletes the node at the end of the other
      session. This happens after a crash of this broker.
    - If the store cannot be reached, wait for the next connection without a time limit.

    Args:
        store: store of the node.
        path: path of the node.
        data: returns the data for the node; called before and after each attempt.
        timeout_s: seconds of waiting for another session's end, after which to give up. A stall of this
            process does not count: the store may have stood still too, and have let the session live on.

    Returns:
        The node. `StoreNode.created` is the number of the transaction that created it.

    Raises:
        NodeExistsError: a node of another session is still there.
        StoreUnavailableError: the store is closed, or will never be reachable again.
    """
    limit = WaitLimit(timeout_s)
    news = asyncio.Event()
    cancel_states = store.on_state(lambda _: news.set())
    cancel_watch = None
    is_told = False
    try:
        while True:
            news.clear()
            try:
                if cancel_watch is None:
                    cancel_watch = await store.watch(path, lambda event, changed: news.set())
                    news.clear()
                node = await _made_or_found(store, path, data())
            except StoreUnavailableError:
                if store.state in FINAL:
                    raise
                if store.state is SessionState.CONNECTED:
                    await asyncio.sleep(_RETRY)
                else:
                    await news.wait()
                continue
            if node is None:
                continue
            if node.owner == store.session_id:
                if node.data != data():
                    continue  # it has changed since the attempt began
                return node
            if limit.is_used_up:
                raise NodeExistsError(f"{path} belongs to another session that lives")
            if not is_told:
                is_told = True
                log.info("%s belongs to another session: waiting up to %.1f s for it to end", path, timeout_s)
            waiting = asyncio.ensure_future(news.wait())
            try:
                await limit.wait(waiting)
            finally:
                waiting.cancel()
    finally:
        cancel_states()
        if cancel_watch is not None:
            cancel_watch()


async def _made_or_found(store: MetadataStore, path: str, data: bytes) -> StoreNode | None:
    """Create the ephemeral node. If this session already owns a node at `path`, write `data` to that node.

    If another session owns the node, do not change the node. Return the node; None if it was deleted or
    changed meanwhile.
    """
    try:
        await store.create(path, data, ephemeral=True)
    except NodeExistsError:
        node = await store.exists(path)
        if node is None or node.owner != store.session_id or node.data == data:
            return node
        try:
            await store.set(path, data, node.version)
        except (NoNodeError, BadVersionError):
            return None
    return await store.exists(path)
