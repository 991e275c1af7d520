"""Wall time, taken from outside so that a test or a simulation can bring its own.

Timers need no class of ours: they are the event loop's `call_later`, which a virtual-time loop
(`barnabas.simulation.virtual_time`) turns without waiting.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Milliseconds since the Unix epoch."""

    def now_ms(self) -> int: ...


class SystemClock:
    """The machine's wall clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class LoopClock:
    """Wall time that runs with an event loop's own time: virtual time in a simulation."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start_ms: int = 1_700_000_000_000) -> None:
        self._loop = loop
        self._start_ms = start_ms - round(loop.time() * 1000)

    def now_ms(self) -> int:
        return self._start_ms + round(self._loop.time() * 1000)


class ManualClock:
    """Time that moves only when it is told to."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = start_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        self._now_ms += ms
