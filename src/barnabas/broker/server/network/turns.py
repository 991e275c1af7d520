"""Divides the requests that arrive together among several turns of the event loop.

In one turn, the loop receives from all connections that have data. If thousands of clients send a request at
the same moment, all these requests would begin in one turn. Timers and tasks would wait for its end (ADR 26).
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable

#: how long requests begin in one turn, in seconds; the request begun last is finished
SLICE = 0.004
#: a connection from the queue may begin requests for so much longer, in seconds: its first check of the clock
#: comes after ours, and it must not lose its place
_GRACE = SLICE / 8


class Turns:
    """Decides whether a request begins in this turn of the event loop, or in a later one.

    Requests begin for a slice of time. If the turn has not ended by then, further requests wait. Each of the
    next turns serves waiting connections, in their order, for a slice. While connections wait, each new
    request waits behind them.

    A slice can begin in one turn and end in another, because the loop has no cheap sign of a new turn. So one
    turn lasts at most two slices, and the loop gets one more callback for each slice, not for each turn.

    A request may begin while `now` is before `end`. After that, `must_wait` decides.

    Args:
        now: clock, in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        #: end of the present slice
        self.end = -math.inf
        #: whether the loop has begun another turn since the slice began
        self._has_turned = True
        #: functions that serve the waiting connections
        self._waiting: deque[Callable[[], None]] = deque()

    def must_wait(self, resume: Callable[[], None]) -> bool:
        """Whether a request must wait, after the end of the slice. If so, call `resume` in a later turn."""
        if self._has_turned:  # then nothing waits
            self._begin_slice()
            return False
        self._waiting.append(resume)
        return True

    def _begin_slice(self) -> None:
        self._has_turned = False
        self.end = self.now() + SLICE
        asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        waiting = self._waiting
        if not waiting:
            self._has_turned = True
            return
        self._begin_slice()
        end, self.end = self.end, self.end + _GRACE
        try:
            while waiting and self.now() < end:
                waiting.popleft()()
        finally:
            if waiting:
                self.end = -math.inf


#: requests never wait: for the connections with TLS
UNLIMITED = Turns(lambda: -math.inf)
UNLIMITED.end = math.inf
