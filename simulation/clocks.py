"""Clocks that follow virtual time, or that only a test moves."""

from __future__ import annotations

import asyncio
from typing import Protocol

#: 14 November 2023
START_MS = 1_700_000_000_000
#: how long it takes to read the clock, in seconds: whoever works until some time has passed comes to an end
_READING = 0.00001


class Ahead(Protocol):
    """Says by how many seconds a blocking call is ahead of the loop (`VirtualThreads`)."""

    @property
    def ahead(self) -> float: ...


class VirtualClock:
    """Wall time that runs with an event loop's own time: virtual time in a simulation.

    Args:
        threads: while a blocking call is made there, it is as late as the call has come.
        start_ms: the wall time when the loop's time is 0, in milliseconds since the epoch.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, threads: Ahead | None = None, start_ms: int = START_MS
    ) -> None:
        self._loop = loop
        self._threads = threads
        self._start_ms = start_ms
        self._readings = 0

    def now_ms(self) -> int:
        return self._start_ms + round(self._seconds() * 1000)

    def monotonic(self) -> float:
        self._readings += 1
        return self._seconds() + self._readings * _READING

    def _seconds(self) -> float:
        return self._loop.time() + (0.0 if self._threads is None else self._threads.ahead)


class ManualClock:
    """Time that moves only when it is told to."""

    def __init__(self, start_ms: int = START_MS) -> None:
        self._now_ms = start_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._now_ms / 1000

    def advance(self, ms: int) -> None:
        self._now_ms += ms
