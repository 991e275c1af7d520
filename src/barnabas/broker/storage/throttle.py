"""Limits the rate of reads and writes in the background."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.base.environment.blocking import Mutex
from barnabas.base.environment.clock import Clock


class Throttle:
    """A limit of bytes a second for all threads together.

    After each piece of work, `delay` returns the seconds to wait. A monotonic clock measures the time,
    because a wall clock that is set back would make all threads wait.
    """

    def __init__(self, clock: Clock, bytes_per_second: Callable[[], float]) -> None:
        """`bytes_per_second` may change at any time."""
        self._clock = clock
        self._rate = bytes_per_second
        self._lock = Mutex()
        #: the time at which all bytes counted so far conform to the rate, in seconds of the monotonic clock
        self._paid = clock.monotonic()

    def delay(self, size: int) -> float:
        """Count `size` bytes; return the seconds to wait before the next ones."""
        rate = self._rate()
        with self._lock:
            now = self._clock.monotonic()
            self._paid = max(self._paid, now) + size / rate
            return self._paid - now
