"""Counts events, and measures how many occur in a second, like Kafka's meters."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.base.metrics.rate import Rate

#: Kafka's defaults (metrics.num.samples, metrics.sample.window.ms)
_SAMPLES, _SAMPLE_S = 2, 30.0


class Meter:
    """Counts events, and measures how many occur in a second.

    Args:
        now: returns the monotonic time in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        #: the number of events since the start
        self.count = 0
        self._now = now
        self._rate = Rate(_SAMPLES, _SAMPLE_S)

    def add(self) -> None:
        """Count one event."""
        self.count += 1
        self._rate.record(1, self._now())

    @property
    def rate(self) -> float:
        """The number of events in a second, over the last 30 to 60 seconds."""
        return self._rate.measure(self._now())
