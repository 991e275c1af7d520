"""Delayed operations: a fetch waits for records, a produce waits for the high watermark.

Kafka calls this a purgatory. A delayed operation tries again when a partition that it watches progresses. It
tries at most once in a turn of the event loop, and one last time after its time limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from barnabas.broker.awaitables import PromptFuture

T = TypeVar("T")


class Watcher(Protocol):
    """A listener for the progress of a `Watched` object."""

    def progressed(self, new_bytes: int) -> None:
        """Handle the commit of `new_bytes` bytes; 0 for other changes, for example of leadership.

        The watched object calls this during the change. So this must only record the change, and act in a
        later turn of the event loop.
        """


class Watched(Protocol):
    """An object, such as a partition, that calls `progressed` of each watcher when it changes.

    The watchers are called in the order in which they were added, so that a simulation is reproducible.
    """

    watchers: dict[Watcher, None]


class DelayedOperation(Generic[T]):
    """An operation that is tried again whenever a watched partition progresses, until it has a result.

    The constructor does not call `attempt`. The caller first tries the operation itself, and creates this
    object only if there is no result yet. The attribute `future` gets the result.

    Args:
        watched: partitions whose progress the operation waits for.
        timeout_ms: longest wait in milliseconds; None for no limit.
        attempt: function whose argument says whether the time limit is over. It returns the result, or None
            to continue to wait. After the time limit it must return a result. If it raises an exception, the
            wait ends with this exception.
        future: future for the result; a new one by default.
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
        # The result, the timer or the end of the connection ends the wait, and this callback cleans up.
        if isinstance(future, PromptFuture):
            future.call_at_once(self._leave)
        else:
            self.future.add_done_callback(self._leave)
        for item in self._watched:
            item.watchers[self] = None

    def expire(self) -> None:
        """Try one last time now, as at the end of the time limit."""
        self._try(True)

    def progressed(self, _new_bytes: int) -> None:
        """Call `attempt` in a later turn of the event loop, because a watched partition has progressed."""
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
