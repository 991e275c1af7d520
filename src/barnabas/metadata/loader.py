"""Keeps a broker's cluster image up to date with the metadata store, and tells who needs to know."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from barnabas.metadata import znodes
from barnabas.metadata.builder import FOLDERS_READ, ImageBuilder
from barnabas.metadata.image import ClusterImage, ImageDelta
from barnabas.metadata.store import Event, MetadataStore
from barnabas.text import logger_of

log = logger_of(__name__)

#: Called on the event loop, after the new image is in place.
ImageListener: TypeAlias = Callable[[ImageDelta], None]


class MetadataLoader:
    """The one owner of a broker's `ClusterImage`.

    The store's watches name paths that changed. A task reads them again, puts a new image in place of the old
    and calls the listeners with the difference. Changes that come meanwhile go into the next image together.
    """

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._image = ClusterImage()
        self._listeners: list[ImageListener] = []
        self._changed: set[str] = set()
        self._refreshing: asyncio.Task[None] | None = None

    @property
    def image(self) -> ClusterImage:
        return self._image

    def subscribe(self, listener: ImageListener) -> None:
        """Tell `listener` of every change from now on; before `start`, the first image is one."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """Watch the store and read all of it.

        Raises:
            StoreError: it cannot be read.
        """
        await self._store.watch("/", self._on_event)
        self._changed.update((znodes.CLUSTER_ID, znodes.CONTROLLER, znodes.FEATURES))
        for folder in FOLDERS_READ:
            self._changed.update(f"{folder}/{name}" for name in await self._store.children(folder))
        await self.settled()

    async def settled(self) -> ClusterImage:
        """The image with every change in it that the store had reported by the time of the call.

        Raises:
            StoreError: the store cannot be read.
        """
        while self._changed or self._refreshing is not None:
            await asyncio.shield(self._begin_refresh())
        return self._image

    async def stop(self) -> None:
        """Listeners hear nothing more."""
        self._listeners.clear()
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)

    def _on_event(self, _event: Event, path: str) -> None:
        self._changed.add(path)
        self._begin_refresh()

    def _begin_refresh(self) -> asyncio.Task[None]:
        """The one task that makes images: two at once would lose what the other found."""
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh(), name="metadata loader")
            self._refreshing.add_done_callback(_report)
        return self._refreshing

    async def _refresh(self) -> None:
        try:
            await self._read_changes()
        finally:
            self._refreshing = None

    async def _read_changes(self) -> None:
        while self._changed:
            changed, self._changed = self._changed, set()
            builder = ImageBuilder(self._store, self._image)
            try:
                delta = await builder.apply(changed)
            except BaseException:
                self._changed |= changed
                raise
            self._image = delta.after
            for listener in self._listeners:
                try:
                    listener(delta)
                except Exception:
                    log.exception("a listener of cluster metadata failed")


def _report(refresh: asyncio.Task[None]) -> None:
    error = None if refresh.cancelled() else refresh.exception()
    if error is not None:
        log.warning("cannot read the cluster's metadata, continuing with the last known state: %s", error)
