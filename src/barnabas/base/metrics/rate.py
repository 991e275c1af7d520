"""Measures the amount used in a second, averaged over a window of time, like Kafka's quotas and meters."""

from __future__ import annotations

import math
from collections import deque


class Rate:
    """The amount used in a second, averaged over a window of time, with Kafka's arithmetic (KIP-13).

    The caller chooses the unit of the amount, for example bytes. The window consists of time slices, the
    samples. Samples before the first use count as empty, so that a burst at the beginning is not a high rate.
    Times are in seconds of one monotonic clock.

    Args:
        samples: the number of samples in the window.
        seconds: the length of each sample.
    """

    __slots__ = ("_samples", "_seconds", "_starts", "_total", "_used")

    def __init__(self, samples: int, seconds: float) -> None:
        self._samples = samples
        self._seconds = seconds
        self._starts: deque[float] = deque()
        self._used: deque[float] = deque()
        self._total = 0.0

    def record(self, amount: float, now: float) -> None:
        """Count `amount` as used at the time `now`."""
        self._forget(now)
        starts = self._starts
        if not starts:
            starts.append(now)
            self._used.append(0.0)
        elif now - starts[-1] >= self._seconds:
            starts.append(now - (now - starts[-1]) % self._seconds)
            self._used.append(0.0)
        self._used[-1] += amount
        self._total += amount

    def measure(self, now: float) -> float:
        """Return the rate at the time `now`: the use in the window, divided by the window's seconds."""
        self._forget(now)
        return self._total / self._window(now)

    def delay(self, limit: float, now: float, *, more: float = 0.0) -> float:
        """Return the seconds without use after which the rate is within `limit`.

        Return 0.0 if the rate is within `limit` already.

        Return infinity if the limit is 0 and the rate is above it.

        Args:
            limit: the highest rate, as an amount each second.
            now: the present time.
            more: an additional amount, as if it had been used now.
        """
        self._forget(now)
        window = self._window(now)
        excess = (self._total + more) / window - limit
        if excess <= 0:
            return 0.0
        return excess / limit * window if limit > 0 else math.inf

    def is_idle(self, now: float) -> bool:
        """Whether all counted use is older than the window."""
        self._forget(now)
        return not self._starts

    def _window(self, now: float) -> float:
        elapsed = now - self._starts[0] if self._starts else 0.0
        missing = self._samples - 1 - int(elapsed / self._seconds)
        return elapsed + max(0, missing) * self._seconds

    def _forget(self, now: float) -> None:
        starts, oldest = self._starts, now - self._samples * self._seconds
        while starts and starts[0] <= oldest:
            starts.popleft()
            self._total -= self._used.popleft()
        if not starts:
            self._total = 0.0  # against rounding errors
