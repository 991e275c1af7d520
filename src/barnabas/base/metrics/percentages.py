"""A histogram of percentages."""

from __future__ import annotations


class Percentages:
    """A histogram of whole percentages from 0 to 100."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts = [0] * 101

    def add(self, percentage: int) -> None:
        """Add one percentage."""
        self._counts[percentage] += 1

    @property
    def count(self) -> int:
        """Return the number of percentages."""
        return sum(self._counts)

    @property
    def sum(self) -> int:
        """Return the sum of the percentages."""
        return sum(percentage * count for percentage, count in enumerate(self._counts))

    def quantile(self, q: float) -> int:
        """Return the `q` quantile of the percentages; 0 if there are none."""
        wanted, below = q * self.count, 0
        for percentage, count in enumerate(self._counts):
            below += count
            if count and below >= wanted:
                return percentage
        return 0
