"""The end positions of logs of one partition, and the longest of these logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from barnabas.base.types import NO_LEADER_EPOCH, LeaderEpoch, Offset
from barnabas.broker.storage.epochs import EpochEntry, LeaderEpochs

K = TypeVar("K")


class LogEnd(NamedTuple):
    """The end of a log.

    Of two logs, the one with the higher last epoch reaches further. If their last epochs are equal, it is the
    one with the higher end offset. `longest_log` also compares logs without an epoch.
    """

    epoch: LeaderEpoch
    end: Offset


def longest_log(ends: Mapping[K, LogEnd]) -> K:
    """Return the key in `ends` of the longest log; the first one of equal logs.

    A log without an epoch (-1) is empty: its records were removed, or its leader's log began at its end. All
    records before its end were committed. So it is longer than logs that end before it.
    """
    emptied = [key for key, end in ends.items() if end.epoch == NO_LEADER_EPOCH]
    others = [key for key in ends if key not in emptied] or emptied
    best = max(others, key=lambda key: ends[key])
    return max((best, *emptied), key=lambda key: ends[key].end)


def contains(epoch_starts: Sequence[tuple[LeaderEpoch, Offset]], own: LogEnd, other: LogEnd) -> bool:
    """Whether a log certainly has all records of another log of the partition (`LeaderEpochs.contains`).

    Return False if this is not known, for example because the other log ends in an epoch before
    `epoch_starts`. A log that ends at offset 0 never had a record, so every log has all of its records.

    Args:
        epoch_starts: the latest leader epochs of the log, each with its first offset, in ascending order;
            empty if only the last one is known.
        own: the end of the log.
        other: the end of the other log.
    """
    entries = [EpochEntry(*each) for each in epoch_starts or (own,)]
    return other.end == 0 or LeaderEpochs(entries).contains(other.epoch, other.end, own.end)
