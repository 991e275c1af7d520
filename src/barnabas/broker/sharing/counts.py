"""Counts for the metrics of share groups on one broker, since its start.

They count acknowledged records, dead letters and fetches, and measure how long stored states take to load. A
broker counts only what it does as the leader of partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from barnabas.base.metrics import Durations, Percentages
from barnabas.broker.sharing.in_flight import Acknowledgement

C = TypeVar("C")

#: the most groups with counts of their own, because clients choose the names of groups freely
MAX_GROUPS = 1000


class LetterCounts:
    """Counts of one share group's dead letters since the start of the broker.

    Attributes:
        records: dead letters that were written.
        requests: attempts to write dead letters.
        failed_requests: attempts that failed.
    """

    def __init__(self) -> None:
        self.records = 0
        self.requests = 0
        self.failed_requests = 0


class FetchCounts:
    """Statistics of one share group's ShareFetch requests since the start of the broker."""

    def __init__(self) -> None:
        #: the percentages of the requested partitions whose records a fetch has acquired
        self.ratios = Percentages()
        #: from the start of a fetch until it has acquired records, or its wait has ended
        self.times = Durations()


class ShareCounts:
    """Counts of all share groups on one broker since its start.

    Attributes:
        acknowledgements: the number of acknowledged records, by acknowledgement type.
        letters: the counts of dead letters, by group. Only groups with dead letters have them.
        fetches: the statistics of fetches, by group. Only groups that have acquired records have them.
        loads: times from a share partition's first fetch until its stored state was loaded.
    """

    def __init__(self) -> None:
        self.acknowledgements: Counter[int] = Counter()
        #: at most `MAX_GROUPS`
        self.letters: dict[str, LetterCounts] = {}
        #: at most `MAX_GROUPS`
        self.fetches: dict[str, FetchCounts] = {}
        self.loads = Durations()

    def acknowledged(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Count the records in accepted acknowledgements, by acknowledgement type."""
        for first, last, types in acknowledgements:
            if len(types) == 1:
                self.acknowledgements[types[0]] += last - first + 1
            else:
                self.acknowledgements.update(types)

    def letters_of(self, group: str) -> LetterCounts:
        """Return the counts of a group's dead letters, which the caller changes."""
        return _of_group(self.letters, group, LetterCounts)

    def fetched(self, group: str, acquired: int, requested: int, seconds: float) -> None:
        """Count a fetch of a group.

        Args:
            group: the group id.
            acquired: the number of partitions whose records the fetch has acquired.
            requested: the number of requested partitions.
            seconds: the duration of the fetch.
        """
        if not acquired and group not in self.fetches:
            return
        counts = _of_group(self.fetches, group, FetchCounts)
        counts.ratios.add(100 * acquired // requested)
        counts.times.add(seconds)


def _of_group(counts: dict[str, C], group: str, make: Callable[[], C]) -> C:
    """Return the counts of a group from `counts`, and move them to the end of this dict.

    If the group has no counts, add the result of `make`. If `counts` then has more than `MAX_GROUPS` groups,
    remove the first group: its counts have not been used for the longest time.
    """
    found = counts.pop(group, None) or make()
    counts[group] = found
    if len(counts) > MAX_GROUPS:
        del counts[next(iter(counts))]
    return found
