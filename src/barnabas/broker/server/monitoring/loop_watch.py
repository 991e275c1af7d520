"""Measures how often, and for how long, code blocks the event loop."""

from __future__ import annotations

import asyncio

#: interval of the timer, in seconds
TICK = 0.05
#: lateness of a timer that is a stall, in seconds
STALL = 0.1


class LoopWatch:
    """Counts in `stalls` how often code blocks the event loop for 0.1 seconds (`STALL`) or longer.

    Every 0.05 seconds, a timer measures how late the event loop calls it. `stalled` is the sum of these
    delays in seconds, without those below 0.1 seconds.
    """

    def __init__(self) -> None:
        self.stalls = 0
        #: total time of all stalls, in seconds
        self.stalled = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + TICK
        self._timer = loop.call_at(due, self._tick, due)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self, due: float) -> None:
        late = asyncio.get_running_loop().time() - due
        if late >= STALL:
            self.stalls += 1
            self.stalled += late
        self.start()
