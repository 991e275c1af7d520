"""Offsets that open transactions have written (KIP-98, KIP-447)."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from barnabas.base.types import ProducerId
from barnabas.broker.coordinator.groups.codec import CommittedOffset, OffsetKey


class PendingOffsets:
    """One shard's, by producer: each has at most one transaction open."""

    def __init__(self) -> None:
        #: None stands for an offset that a later commit outside the transaction has overtaken: it will not
        #: count, but until the transaction ends nobody can be sure of the partition
        self._producers: dict[ProducerId, dict[OffsetKey, CommittedOffset | None]] = {}
        #: how many open transactions have written each key
        self._writers: dict[OffsetKey, int] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._writers

    def of_group(self, group_id: str) -> Collection[OffsetKey]:
        """The keys of a group that open transactions have written."""
        return [key for key in self._writers if key.group_id == group_id]

    def put(self, producer_id: ProducerId, key: OffsetKey, committed: CommittedOffset) -> None:
        written = self._producers.setdefault(producer_id, {})
        if key not in written:
            self._writers[key] = self._writers.get(key, 0) + 1
        written[key] = committed

    def overtake(self, key: OffsetKey) -> None:
        """An offset was committed outside the transactions, after theirs."""
        if key in self._writers:
            for written in self._producers.values():
                if key in written:
                    written[key] = None

    def drop(self, key: OffsetKey) -> None:
        """The offset was deleted, with all that would become of it."""
        if self._writers.pop(key, None):
            for written in self._producers.values():
                written.pop(key, None)

    def end(self, producer_id: ProducerId) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """The transaction has ended. Returns its offsets without those that later commits have overtaken."""
        for key, committed in self._producers.pop(producer_id, {}).items():
            self._writers[key] -= 1
            if not self._writers[key]:
                del self._writers[key]
            if committed is not None:
                yield key, committed
