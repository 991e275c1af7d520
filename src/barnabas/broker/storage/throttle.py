"""Limits the rate of reads and writes in the background."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.base.environment.blocking import Mutex
from barnabas.base.environment.clock import Clock


class Throttle:
    """Limits the rate, in bytes per second, at which several threads together read and write.

    After each piece of work, a thread waits for the seconds that `delay` returns. The clock is monotonic,
    because threads would wait for long after a wall clock is set back.
    """

    def __init__(self, clock: Clock, bytes_per_second: Callable[[], float]) -> None:
        """Create a throttle. `bytes_per_second` returns the present rate, which may change at any time."""
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
