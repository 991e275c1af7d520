"""Measures the time during which a broker could serve its followers: the event loop's time without stalls.

At intervals of this time, the broker checks whether followers lag.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.broker.view import BrokerView

#: longest time between two measurements, in seconds
_MAX_TICK = 1.0
#: measurements in the interval of two checks
_TICKS = 8
#: seconds by which a timer may be late without a stall
_TOLERANCE = 0.1


class ServingTime:
    """Counts the seconds in which the event loop was not stalled, and calls a function at intervals.

    The interval is half of ``replica.lag.time.max.ms``, without the time of stalls. While a broker stalls (a
    stopped process, a disk that hangs, an overloaded machine), its followers cannot catch up. They must not
    leave the ISR because of a stall. A timer that fires late shows the length of a stall.
    """

    def __init__(self, view: BrokerView) -> None:
        self._loop = asyncio.get_running_loop()
        self._view = view
        self._stalled = 0.0
        self._checked_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def now(self) -> float:
        """Return the event loop's time minus all noticed stalls, in seconds since a fixed moment.

        A stall is noticed only after its end, so the value can then decrease.
        """
        return self._loop.time() - self._stalled

    def start(self, check: Callable[[], None]) -> None:
        """Call `check` whenever half of ``replica.lag.time.max.ms`` has passed, until `stop` is called."""
        self._checked_at = self.now()
        self._wait(check)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @property
    def _interval(self) -> float:
        """The time between two checks, in seconds."""
        return self._view.config.replica_lag_time_max_ms / 2000

    def _wait(self, check: Callable[[], None]) -> None:
        due = self._loop.time() + min(_MAX_TICK, self._interval / _TICKS)
        self._timer = self._loop.call_at(due, self._tick, due, check)

    def _tick(self, due: float, check: Callable[[], None]) -> None:
        self._wait(check)  # first: a failed check must not end the checks
        late = self._loop.time() - due
        if late > _TOLERANCE:
            self._stalled += late
        if self.now() - self._checked_at >= self._interval:
            self._checked_at = self.now()
            check()
