"""Computes the lag of groups: the number of records between a group's committed offset and the log end."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.base.types import TopicPartition


def lag_of(
    ends: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the lag, in records, of each partition that is in both `ends` and `committed`.

    The lag is the end offset minus the committed offset, but never below 0.
    """
    return {p: max(0, ends[p] - offset) for p, offset in committed.items() if p in ends}
