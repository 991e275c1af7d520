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


def may_contain(epoch_starts: Sequence[tuple[LeaderEpoch, Offset]], end: Offset, other: LogEnd) -> bool:
    """Whether a log may have all records of another log of the partition (`LeaderEpochs.contains`).

    The log's epochs before `epoch_starts` are not known. If the other log ends in one of them, return whether
    it ends before the first known epoch begins. Records behind that start differ from those of the other log.

    Args:
        epoch_starts: the latest leader epochs of the log, each with its first offset, in ascending order;
            empty if they are not known.
        end: end offset of the log.
        other: the end of the other log.
    """
    entries = [EpochEntry(*each) for each in epoch_starts]
    if not entries or other.epoch == NO_LEADER_EPOCH:
        return True
    if other.epoch < entries[0].epoch:
        return other.end <= entries[0].start_offset
    return LeaderEpochs(entries).contains(other.epoch, other.end, end)
