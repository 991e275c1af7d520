"""Holds what reads and writes in the background to a rate."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.environment.blocking import Mutex
from barnabas.environment.clock import Clock


class Throttle:
    """A rate of bytes a second that several threads share.

    Each piece of work is booked behind those before it, and whoever is ahead of the rate waits.
    """

    def __init__(self, clock: Clock, bytes_per_second: Callable[[], float]) -> None:
        """`bytes_per_second` may change at any time."""
        self._clock = clock
        self._rate = bytes_per_second
        self._lock = Mutex()
        #: when what was booked so far is paid for, in milliseconds since the epoch
        self._paid_ms = 0.0

    def delay(self, size: int) -> float:
        """Books `size` bytes; how many seconds to wait before more is done."""
        rate = self._rate()
        with self._lock:
            now_ms = self._clock.now_ms()
            self._paid_ms = max(self._paid_ms, now_ms) + size * 1000 / rate
            return (self._paid_ms - now_ms) / 1000
