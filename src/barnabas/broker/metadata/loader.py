"""Keeps a broker's cluster image up to date with the metadata store, and tells listeners each change."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping, Set
from typing import TypeAlias

from barnabas.base.tasks import stop_tasks
from barnabas.base.text import logger_of
from barnabas.base.types import TopicPartition
from barnabas.broker.metadata.builder import ImageBuilder, all_paths
from barnabas.broker.metadata.image import ClusterImage, ImageDelta
from barnabas.broker.metadata.reconnection import persistently
from barnabas.broker.metadata.store import (
    Cancel,
    DamagedNodeError,
    Event,
    MetadataStore,
    SessionState,
    StoreUnavailableError,
)

log = logger_of(__name__)

#: Function that is called on the event loop after each change of the image. Its exception stops the broker.
ImageListener: TypeAlias = Callable[[ImageDelta], None]

#: the most changed nodes that one new image applies
_AT_ONCE = 200
#: between two attempts to read, doubled after each; in seconds
_FIRST_RETRY, _LAST_RETRY = 0.1, 5.0


class MetadataLoader:
    """Owns and updates the `ClusterImage` of a broker.

    The store's watches report the paths of changed nodes. A task reads these nodes, replaces the metadata
    image, and calls the listeners with the difference. Changes that arrive during the read go into the next
    images, at most a few hundred nodes into each one.

    A node whose data is damaged keeps its last known value in the image, until a user mends the node. The
    first image fails instead, because it would lack the node's value.

    While the session with the store was not connected, no watch reported changes. So when it is connected
    again, the loader reads everything again. It retries a failed read at growing intervals. If a listener
    fails, it has applied only a part of a change. Then the loader applies no more changes, and calls
    `on_failure`, which must stop the broker.
    """

    def __init__(self, store: MetadataStore, on_failure: Callable[[Exception], None] | None = None) -> None:
        self._store = store
        self._on_failure = on_failure
        self._image = ClusterImage()
        self._listeners: dict[ImageListener, None] = {}
        #: paths of changed nodes, in the order of their changes
        self._changed: dict[str, None] = {}
        #: the reason for each damaged node, by its path
        self._damaged: dict[str, str] = {}
        #: number of requests to read everything, and the number of the last request that was met
        self._wanted = 1
        self._read = 0
        self._refreshing: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._retry_delay = _FIRST_RETRY
        self._cancels: list[Cancel] = []
        self._failure: Exception | None = None

    @property
    def image(self) -> ClusterImage:
        return self._image

    @property
    def is_certain(self) -> bool:
        """Whether the session is certainly alive, and all nodes were read after the last reconnection."""
        return self._read == self._wanted and self._store.is_certain

    @property
    def has_damage(self) -> bool:
        """Whether the data of a node is damaged, so that the image has the node's last known value."""
        return bool(self._damaged)

    def in_doubt(self, partitions: Iterable[TopicPartition]) -> Iterable[TopicPartition]:
        """Return those of `partitions` whose leader may have been replaced since the last known state.

        While the image is not certain, these are all of them. Otherwise these are the partitions whose states
        are damaged (`PartitionState.is_damaged`).
        """
        if not self.is_certain:
            return partitions
        states = ((partition, self._image.partition(partition)) for partition in partitions)
        return [partition for partition, state in states if state is not None and state.is_damaged]

    def subscribe(self, listener: ImageListener) -> Cancel:
        """Call `listener` with every change, until the returned function is called.

        If `listener` subscribes before `start`, the first metadata image is a change, too.
        """
        self._listeners[listener] = None

        def cancel() -> None:
            self._listeners.pop(listener, None)

        return cancel

    async def start(self) -> None:
        """Watch the store, and read all nodes into the first image.

        Repeat this if the connection breaks meanwhile.

        Raises:
            DamagedNodeError: the data of a node cannot be decoded.
            StoreError: the store cannot be read, or a listener has failed.
        """
        store = self._store
        self._cancels.append(store.on_state(self._on_state))
        self._cancels.append(await persistently(store, lambda: store.watch("/", self._on_event)))
        await persistently(store, self._read_unless_failed)
        self._check_failure()

    async def _read_unless_failed(self) -> None:
        if self._failure is None:
            await self.settled()

    async def settled(self) -> ClusterImage:
        """Return a metadata image with every change that the store had reported before this call.

        Raises:
            DamagedNodeError: the first image cannot be made, because the data of a node is damaged.
            StoreError: the store cannot be read, or a listener has failed.
        """
        while self._is_behind() or self._refreshing is not None:
            await asyncio.shield(self._begin_refresh())
        self._check_failure()
        return self._image

    async def synced(self) -> ClusterImage:
        """Return a metadata image with every change that any broker had made before this call.

        Raises:
            StoreError: the store cannot be read, or a listener has failed.
        """
        await self._store.sync()
        return await self.settled()

    async def stop(self) -> None:
        """Stop the updates of the metadata image. Listeners receive no more calls."""
        self._listeners.clear()
        while self._cancels:
            self._cancels.pop()()
        self._stop_retry()
        await stop_tasks(self._refreshing)
        self._stop_retry()

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise StoreUnavailableError(
                f"a change of the metadata could not be applied: {self._failure}"
            ) from self._failure

    def _is_behind(self) -> bool:
        return bool(self._changed) or self._read != self._wanted

    def _on_event(self, _event: Event, path: str) -> None:
        self._changed[path] = None
        self._begin_refresh()

    def _on_state(self, state: SessionState) -> None:
        self._wanted += 1
        if state is SessionState.CONNECTED:
            self._retry_delay = _FIRST_RETRY
            self._begin_refresh()

    def _begin_refresh(self) -> asyncio.Task[None]:
        """Return the task that updates the metadata image. Start the task if it does not run.

        There is only one such task, because two at once would lose each other's changes.
        """
        if self._refreshing is None:
            self._stop_retry()
            self._refreshing = asyncio.create_task(self._refresh(), name="metadata loader")
            self._refreshing.add_done_callback(self._on_refreshed)
        return self._refreshing

    async def _refresh(self) -> None:
        try:
            while self._is_behind():
                await self._read_changes()
                await asyncio.sleep(0)  # a store in memory answers at once
        finally:
            self._refreshing = None

    async def _read_changes(self) -> None:
        self._check_failure()
        wanted = self._wanted
        is_whole = self._read != wanted
        changed = self._pop_changed(len(self._changed) if is_whole else _AT_ONCE)
        try:
            if is_whole:
                changed |= dict.fromkeys(await all_paths(self._store, self._image))
            builder = ImageBuilder(self._store, self._image, self._damaged.keys())
            delta = await builder.apply(changed.keys())
            self._note_damage(self._damaged.keys() if is_whole else changed.keys(), builder.damaged)
        except BaseException:
            self._changed = changed | self._changed
            raise
        self._read = wanted
        self._retry_delay = _FIRST_RETRY
        self._apply(delta.narrowed() if is_whole else delta)

    def _note_damage(self, read: Set[str], damaged: Mapping[str, str]) -> None:
        for path, reason in damaged.items():
            if not self._read:
                raise DamagedNodeError(reason)
            if self._damaged.get(path) != reason:
                log.error("%s: until a user mends the node, the broker uses its last known value", reason)
        self._damaged = {path: self._damaged[path] for path in self._damaged.keys() - read}
        self._damaged.update(damaged)

    def _pop_changed(self, max_paths: int) -> dict[str, None]:
        """Remove and return the paths of the oldest `max_paths` changes, the oldest change first.

        The limit keeps each turn of the event loop short if many nodes have changed.
        """
        changed = self._changed
        if len(changed) <= max_paths:
            self._changed = {}
            return changed
        return {path: changed.pop(path) for path in list(itertools.islice(changed, max_paths))}

    def _apply(self, delta: ImageDelta) -> None:
        self._image = delta.after
        for listener in tuple(self._listeners):
            try:
                listener(delta)
            except Exception as error:
                log.exception("a change of the cluster's metadata could not be applied")
                self._failure = error
                if self._on_failure is not None:
                    self._on_failure(error)
                self._check_failure()

    def _on_refreshed(self, refresh: asyncio.Task[None]) -> None:
        error = None if refresh.cancelled() else refresh.exception()
        if error is None or self._failure is not None:
            return
        if self._store.state is not SessionState.CONNECTED:
            return  # everything is read when it is again
        log.warning(
            "cannot read the metadata, continuing with the last known state; trying again in %.1f s: %s",
            self._retry_delay,
            error,
        )
        self._stop_retry()
        self._retry = asyncio.get_running_loop().call_later(self._retry_delay, self._begin_refresh)
        self._retry_delay = min(2 * self._retry_delay, _LAST_RETRY)

    def _stop_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
