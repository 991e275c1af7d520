"""Counts of the share groups for which this broker leads partitions, for the metrics."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from barnabas.base.metrics import Durations, Percentages
from barnabas.broker.sharing.in_flight import Acknowledgement


class LetterCounts:
    """Counts of one share group's dead letters since the start of the broker."""

    def __init__(self) -> None:
        self.records = 0
        self.requests = 0
        self.failed_requests = 0


class FetchCounts:
    """Counts of one share group's fetches since the start of the broker."""

    def __init__(self) -> None:
        #: the percentages of the requested partitions whose records a fetch has acquired
        self.ratios = Percentages()
        #: from the start of a fetch until it has acquired records, or its wait has ended
        self.times = Durations()


class ShareCounts:
    """Counts of all share groups on this broker since its start."""

    def __init__(self) -> None:
        #: by acknowledgement type, the number of acknowledged records
        self.acknowledgements: Counter[int] = Counter()
        #: by group, the counts of its dead letters; only of groups that had some
        self.letters: defaultdict[str, LetterCounts] = defaultdict(LetterCounts)
        #: by group, the counts of its fetches; only of groups that have acquired records
        self.fetches: dict[str, FetchCounts] = {}
        #: from a share partition's first fetch until its stored state was loaded
        self.loads = Durations()

    def acknowledged(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Count the records in accepted acknowledgements, by acknowledgement type."""
        for first, last, types in acknowledgements:
            if len(types) == 1:
                self.acknowledgements[types[0]] += last - first + 1
            else:
                self.acknowledgements.update(types)

    def fetched(self, group: str, acquired: int, requested: int, seconds: float) -> None:
        """Count a fetch of a group.

        Args:
            group: the group id.
            acquired: the number of partitions whose records the fetch has acquired.
            requested: the number of requested partitions.
            seconds: the duration of the fetch.
        """
        counts = self.fetches.get(group)
        if counts is None:
            if not acquired:
                return
            counts = self.fetches[group] = FetchCounts()
        counts.ratios.add(100 * acquired // requested)
        counts.times.add(seconds)
