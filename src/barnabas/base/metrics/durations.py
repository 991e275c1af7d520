"""A histogram of durations."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

#: the upper bounds of the buckets, in seconds; one more bucket takes what is longer
BOUNDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip


class Durations:
    """A histogram of durations. `BOUNDS` are the upper bounds of its buckets, in seconds.

    Code on the hot path changes `counts` and `seconds` directly, which saves a call of `add`.
    """

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        #: how many fell into each bucket
        self.counts = [0] * (len(BOUNDS) + 1)
        #: all together
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Add one duration."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds

    @property
    def count(self) -> int:
        """Return the number of durations."""
        return sum(self.counts)

    def buckets(self) -> Iterator[tuple[str, int]]:
        """Return the cumulative buckets for Prometheus: pairs of an upper bound and a count.

        The bound is a number of seconds as text; the last one is ``+Inf``. The count is the number of
        durations that do not exceed the bound.
        """
        bounds = (*map(repr, BOUNDS), "+Inf")
        return zip(bounds, accumulate(self.counts), strict=True)

    def quantile(self, q: float) -> float:
        """Return the approximate `q` quantile of the durations in seconds; 0 if there are none.

        Durations are assumed to be spread evenly within a bucket. Those above the last bound count as that
        bound.
        """
        wanted = q * self.count
        below, low = 0, 0.0
        for bound, count in zip(BOUNDS, self.counts, strict=False):
            if count and below + count >= wanted:
                return low + (bound - low) * (wanted - below) / count
            below += count
            low = bound
        return BOUNDS[-1] if below < self.count else 0.0
