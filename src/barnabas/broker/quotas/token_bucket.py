"""Limits the rate of use, and the amount used at once."""

from __future__ import annotations

import math


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

    def consume(self, amount: float, now: float) -> None:
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
