"""Clocks that follow virtual time, or that only a test changes."""

from __future__ import annotations

import asyncio
from typing import Protocol

#: 14 November 2023
START_MS = 1_700_000_000_000
#: how long it takes to read the clock, in seconds: whoever works until some time has passed comes to an end
_READING = 0.00001


class Ahead(Protocol):
    """The time, in seconds, by which the present blocking call is ahead of the event
    loop (`VirtualThreads`).
    """

    @property
    def ahead(self) -> float: ...


class VirtualClock:
    """The time of day, derived from an event loop's time. In a simulation this is virtual time.

    Args:
        threads: the simulated threads. During a blocking call, the clock includes the time that the call has
            slept.
        start_ms: the time of day when the loop's time is 0, in milliseconds since 1970.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, threads: Ahead | None = None, start_ms: int = START_MS
    ) -> None:
        self._loop = loop
        self._threads = threads
        self._start_ms = start_ms
        self._readings = 0
        #: milliseconds by which the time of day is wrong: a test sets the clock ahead or back by it
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return self._start_ms + self.ahead_ms + round(self._seconds() * 1000)

    def monotonic(self) -> float:
        self._readings += 1
        return self._seconds() + self._readings * _READING

    def _seconds(self) -> float:
        return self._loop.time() + (0.0 if self._threads is None else self._threads.ahead)


class ManualClock:
    """A clock that only a test changes."""

    def __init__(self, start_ms: int = START_MS) -> None:
        self._now_ms = start_ms
        #: milliseconds by which the time of day is wrong. The monotonic clock does not have this error
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return self._now_ms + self.ahead_ms

    def monotonic(self) -> float:
        return self._now_ms / 1000

    def advance(self, ms: int) -> None:
        self._now_ms += ms
