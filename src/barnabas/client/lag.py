"""The lag of groups: the records between what a group has committed and the end of the log."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.base.types import TopicPartition


def lag_of(
    ends: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the lag of each partition that a group has committed and whose end is known, in records."""
    return {p: max(0, ends[p] - offset) for p, offset in committed.items() if p in ends}
