"""Keeps a broker's cluster image up to date with the metadata store, and tells who needs to know."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from barnabas.metadata.builder import ImageBuilder, all_paths
from barnabas.metadata.image import ClusterImage, ImageDelta
from barnabas.metadata.store import Cancel, Event, MetadataStore, SessionState, StoreUnavailableError
from barnabas.text import logger_of

log = logger_of(__name__)

#: Called on the event loop, after the new image is in place. What it raises stops the broker.
ImageListener: TypeAlias = Callable[[ImageDelta], None]

#: between two attempts to read, doubled after each; in seconds
_FIRST_RETRY, _LAST_RETRY = 0.1, 5.0


class MetadataLoader:
    """The one owner of a broker's `ClusterImage`.

    The store's watches name paths that changed. A task reads them again, puts a new image in place of the old
    and calls the listeners with the difference. Changes that come meanwhile go into the next image together.

    Whenever the session with the store was not connected, changes went unheard: everything is read again when
    it is. A read that fails is tried again, at growing intervals. A listener that fails has applied half of a
    change: nothing is applied any more, and `on_failure` is called, which has to stop the broker.
    """

    def __init__(self, store: MetadataStore, on_failure: Callable[[Exception], None] | None = None) -> None:
        self._store = store
        self._on_failure = on_failure
        self._image = ClusterImage()
        self._listeners: list[ImageListener] = []
        self._changed: set[str] = set()
        #: how often everything had to be read, and of which of these times it was
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

    def subscribe(self, listener: ImageListener) -> None:
        """Tell `listener` of every change from now on; before `start`, the first image is one."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """Watch the store and read all of it.

        Raises:
            StoreError: it cannot be read.
        """
        self._cancels.append(self._store.on_state(self._on_state))
        self._cancels.append(await self._store.watch("/", self._on_event))
        await self.settled()

    async def settled(self) -> ClusterImage:
        """The image with every change in it that the store had reported by the time of the call.

        Raises:
            StoreError: the store cannot be read, or a listener has failed.
        """
        while self._is_behind() or self._refreshing is not None:
            await asyncio.shield(self._begin_refresh())
        self._check_failure()
        return self._image

    async def stop(self) -> None:
        """Listeners hear nothing more."""
        self._listeners.clear()
        while self._cancels:
            self._cancels.pop()()
        self._stop_retry()
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)
        self._stop_retry()

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise StoreUnavailableError(
                f"a change of the metadata could not be applied: {self._failure}"
            ) from self._failure

    def _is_behind(self) -> bool:
        return bool(self._changed) or self._read != self._wanted

    def _on_event(self, _event: Event, path: str) -> None:
        self._changed.add(path)
        self._begin_refresh()

    def _on_state(self, state: SessionState) -> None:
        self._wanted += 1
        if state is SessionState.CONNECTED:
            self._retry_delay = _FIRST_RETRY
            self._begin_refresh()

    def _begin_refresh(self) -> asyncio.Task[None]:
        """The one task that makes images: two at once would lose what the other found."""
        if self._refreshing is None:
            self._stop_retry()
            self._refreshing = asyncio.create_task(self._refresh(), name="metadata loader")
            self._refreshing.add_done_callback(self._on_refreshed)
        return self._refreshing

    async def _refresh(self) -> None:
        try:
            while self._is_behind():
                await self._read_changes()
        finally:
            self._refreshing = None

    async def _read_changes(self) -> None:
        self._check_failure()
        wanted = self._wanted
        is_whole = self._read != wanted
        changed, self._changed = self._changed, set()
        try:
            if is_whole:
                changed |= await all_paths(self._store, self._image)
            delta = await ImageBuilder(self._store, self._image).apply(changed)
        except BaseException:
            self._changed |= changed
            raise
        self._read = wanted
        self._retry_delay = _FIRST_RETRY
        self._apply(delta.narrowed() if is_whole else delta)

    def _apply(self, delta: ImageDelta) -> None:
        self._image = delta.after
        for listener in self._listeners:
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
