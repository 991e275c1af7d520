"""Counts of the share groups for which this broker leads partitions, for the metrics."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from barnabas.base.metrics.durations import Durations
from barnabas.broker.sharing.in_flight import Acknowledgement


class LetterCounts:
    """Counts of one share group's dead letters since the start of the broker."""

    def __init__(self) -> None:
        self.records = 0
        self.requests = 0
        self.failed_requests = 0


class ShareCounts:
    """Counts of all share groups on this broker since its start."""

    def __init__(self) -> None:
        #: by acknowledgement type, the number of acknowledged records
        self.acknowledgements: Counter[int] = Counter()
        #: by group, the counts of its dead letters; only of groups that had some
        self.letters: defaultdict[str, LetterCounts] = defaultdict(LetterCounts)
        #: from a share partition's first fetch until its stored state was loaded
        self.loads = Durations()

    def acknowledged(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Count the records in accepted acknowledgements, by acknowledgement type."""
        for first, last, types in acknowledgements:
            if len(types) == 1:
                self.acknowledgements[types[0]] += last - first + 1
            else:
                self.acknowledgements.update(types)
