"""Measures rates of use. Computes the delays after which a rate is within its limit again."""

from __future__ import annotations

import math
from collections import deque


class Rate:
    """The rate of use in a window of some samples, with Kafka's arithmetic (KIP-13).

    Samples before the first use count as empty, so that a burst at the beginning is not a high rate. Times
    are in seconds of one monotonic clock.

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


class TokenBucket:
    """A token bucket (KIP-599), which fills at a steady rate and limits the amount used at once.

    The bucket begins full. Use is allowed while its level is not below zero, and can bring it below zero.

    Args:
        limit: the amount that flows into the bucket each second.
        seconds: the time in which the empty bucket becomes full.
        now: the present time, in seconds of a monotonic clock.
    """

    __slots__ = ("_limit", "_refilled_at", "_seconds", "_tokens")

    def __init__(self, limit: float, seconds: float, now: float) -> None:
        self._limit = limit
        #: seconds in which the empty bucket fills
        self._seconds = seconds
        self._tokens = limit * seconds
        self._refilled_at = now

    def set_limit(self, limit: float, now: float) -> None:
        """Fill the bucket with `limit` each second from `now` on.

        The bucket's size changes in proportion to `limit`.
        """
        self._refill(now)
        self._limit = limit
        self._tokens = min(self._tokens, limit * self._seconds)

    def take(self, amount: float, now: float) -> None:
        """Take `amount` from the bucket, even if its level is below zero after that."""
        self._refill(now)
        self._tokens -= amount

    def delay(self, now: float) -> float:
        """Return the seconds until use is allowed again; 0.0 if it is allowed now.

        Return infinity if use is not allowed and the limit is 0.
        """
        self._refill(now)
        if self._tokens >= 0:
            return 0.0
        return -self._tokens / self._limit if self._limit > 0 else math.inf

    def is_idle(self, now: float) -> bool:
        """Whether the bucket is full."""
        self._refill(now)
        return self._tokens >= self._limit * self._seconds

    def _refill(self, now: float) -> None:
        passed, self._refilled_at = max(0.0, now - self._refilled_at), now
        self._tokens = min(self._limit * self._seconds, self._tokens + passed * self._limit)
