"""Holds what reads and writes in the background to a rate."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.base.environment.blocking import Mutex
from barnabas.base.environment.clock import Clock


class Throttle:
    """A rate of bytes a second that several threads share.

    Each piece of work counts behind those before it, and a caller ahead of the rate waits. The time is
    monotonic: a wall clock that is set back would have all of them wait until it is there again.
    """

    def __init__(self, clock: Clock, bytes_per_second: Callable[[], float]) -> None:
        """`bytes_per_second` may change at any time."""
        self._clock = clock
        self._rate = bytes_per_second
        self._lock = Mutex()
        #: when what was booked so far is paid for, in seconds of the monotonic clock
        self._paid = clock.monotonic()

    def delay(self, size: int) -> float:
        """Count `size` bytes; return the seconds to wait before the next ones."""
        rate = self._rate()
        with self._lock:
            now = self._clock.monotonic()
            self._paid = max(self._paid, now) + size / rate
            return self._paid - now
