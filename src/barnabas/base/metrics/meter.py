"""A count of events with its rate, as Kafka's meters have it."""

from __future__ import annotations

from collections.abc import Callable

#: the length of a window in seconds, and so the shortest time over which a rate is the mean
WINDOW_S = 30.0


class Meter:
    """Counts events. Its rate is the mean of the present window and the one before it.

    A window lasts `WINDOW_S` seconds.

    Args:
        now: returns the monotonic time in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        #: the number of events since the start
        self.count = 0
        self._now = now
        self._window_start = now()
        self._previous = self._present = 0

    def add(self) -> None:
        """Count one event."""
        self._advance()
        self.count += 1
        self._present += 1

    @property
    def rate(self) -> float:
        """The number of events in a second, over the last 30 to 60 seconds."""
        self._advance()
        return (self._previous + self._present) / (WINDOW_S + self._now() - self._window_start)

    def _advance(self) -> None:
        passed = int((self._now() - self._window_start) // WINDOW_S)
        if passed:
            self._previous, self._present = self._present if passed == 1 else 0, 0
            self._window_start += passed * WINDOW_S
