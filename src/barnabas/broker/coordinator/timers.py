"""Timers that are cheap to set again: a heartbeat only moves the deadline of the timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable


class _Timer:
    __slots__ = ("callback", "deadline", "handle", "wakes_at")

    def __init__(self, deadline: float, callback: Callable[[], None]) -> None:
        self.deadline = deadline
        self.callback = callback
        #: when the event loop calls back; earlier than `deadline` if that was moved
        self.wakes_at = deadline
        self.handle: asyncio.Handle


class Timers:
    """The one-shot timers of one coordinator shard, each with a key."""

    def __init__(self) -> None:
        self._timers: dict[Hashable, _Timer] = {}
        self._closed = False

    def set(self, key: Hashable, delay_ms: int, callback: Callable[[], None]) -> None:
        """Call `callback` in `delay_ms` milliseconds. Replace the timer with the same key, if it is set.

        After `close`, this method does nothing.
        """
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + delay_ms / 1000
        timer = self._timers.get(key)
        if timer is not None and timer.wakes_at <= deadline:
            # The event loop calls `_fire` early enough, which reads the new deadline. So a heartbeat needs no
            # new handle of the loop.
            timer.deadline = deadline
            timer.callback = callback
            return
        if timer is not None:
            timer.handle.cancel()
        timer = self._timers[key] = _Timer(deadline, callback)
        timer.handle = loop.call_at(deadline, self._fire, key, timer)

    def cancel(self, key: Hashable) -> None:
        """Cancel the timer with this key, if it is set."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.handle.cancel()

    def close(self) -> None:
        """Cancel all timers, and ignore later calls of `set`.

        An operation that fails because its shard was unloaded may try to set a timer for a retry. The timer's
        callback would change the next shard of the partition.
        """
        self._closed = True
        for timer in self._timers.values():
            timer.handle.cancel()
        self._timers.clear()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._timers

    def _fire(self, key: Hashable, timer: _Timer) -> None:
        loop = asyncio.get_running_loop()
        if timer.deadline > timer.wakes_at:
            timer.wakes_at = timer.deadline
            timer.handle = loop.call_at(timer.deadline, self._fire, key, timer)
            return
        del self._timers[key]
        timer.callback()
