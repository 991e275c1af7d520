"""Operations that wait for partitions to progress: a fetch for records, a produce for the high watermark.

Kafka calls this a purgatory. A delayed operation runs again when a partition that it watches progresses. It
runs at most once in a turn of the event loop, and one last time when its time is up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class Watcher(Protocol):
    """A listener for progress."""

    def progressed(self, new_bytes: int) -> None:
        """Note that `new_bytes` were committed; 0 for other changes: leadership, a log's bounds.

        Called in the middle of the change: take note of it, and act in a later turn of the event loop.
        """


class Watched(Protocol):
    """Something that can progress: it calls `progressed` of each of its watchers when it does.

    They are kept in the order in which they came, for a simulation to be the same each time.
    """

    watchers: dict[Watcher, None]


class DelayedOperation(Generic[T]):
    """One delayed operation; its client waits for `future`.

    Args:
        watched: the partitions whose progress it waits for.
        timeout_ms: the longest wait; None for no limit.
        attempt: called with whether the time is up; returns the result, or None to wait on (never None when
            the time is up). An exception of it ends the wait too.
        future: the future for the result; a new one when left out.
    """

    __slots__ = ("_attempt", "_loop", "_scheduled", "_timer", "_watched", "future")

    def __init__(
        self,
        watched: Iterable[Watched],
        timeout_ms: int | None,
        attempt: Callable[[bool], T | None],
        future: asyncio.Future[T] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._attempt = attempt
        self._scheduled = False
        self._watched = tuple(watched)
        self._timer: asyncio.TimerHandle | None = None
        if timeout_ms is not None:
            self._timer = self._loop.call_later(timeout_ms / 1000, self._try, True)
        self.future: asyncio.Future[T] = self._loop.create_future() if future is None else future
        # The result, the timer or the end of the connection ends the wait: nothing is left behind.
        self.future.add_done_callback(self._leave)
        for item in self._watched:
            item.watchers[self] = None

    def expire(self) -> None:
        """Try one last time, now: the wait is over."""
        self._try(True)

    def progressed(self, _new_bytes: int) -> None:
        """Try again soon."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._try, False)

    def _try(self, expired: bool) -> None:
        self._scheduled = False
        if self.future.done():
            return
        try:
            result = self._attempt(expired)
        except Exception as error:
            self.future.set_exception(error)
            return
        if result is not None:
            self.future.set_result(result)

    def _leave(self, _future: asyncio.Future[T]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for item in self._watched:
            item.watchers.pop(self, None)
