"""Offsets that open transactions have written, and that are not committed yet (KIP-98, KIP-447)."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from barnabas.base.types import ProducerId
from barnabas.broker.coordinator.groups.codec import CommittedOffset, OffsetKey


class PendingOffsets:
    """The pending offsets of one shard, by producer. Each producer has at most one open transaction."""

    def __init__(self) -> None:
        #: None: a later commit outside of the transaction has replaced the offset. It will not become valid,
        #: but the partition is unstable until the transaction ends.
        self._producers: dict[ProducerId, dict[OffsetKey, CommittedOffset | None]] = {}
        #: the number of open transactions that have written each key
        self.writers: dict[OffsetKey, int] = {}

    def __contains__(self, key: object) -> bool:
        return key in self.writers

    def of_group(self, group_id: str) -> Collection[OffsetKey]:
        """Return the keys of a group's pending offsets: open transactions have written them."""
        return [key for key in self.writers if key.group_id == group_id]

    def of_topics(
        self, group_id: str, topics: set[str]
    ) -> Iterator[tuple[OffsetKey, CommittedOffset | None]]:
        """Yield a group's pending offsets of these topics; None for one that a later commit replaced."""
        keys = [key for key in self.of_group(group_id) if key.topic in topics]
        for written in self._producers.values() if keys else ():
            for key in keys:
                if key in written:
                    yield key, written[key]

    def put(self, producer_id: ProducerId, key: OffsetKey, committed: CommittedOffset) -> None:
        written = self._producers.setdefault(producer_id, {})
        if key not in written:
            self.writers[key] = self.writers.get(key, 0) + 1
        written[key] = committed

    def supersede(self, key: OffsetKey) -> None:
        """Make the pending offsets of `key` void: a later commit outside of transactions replaces them.

        The key still counts as pending until the transactions end.
        """
        for written in self._producers.values():
            if key in written:
                written[key] = None

    def drop(self, key: OffsetKey) -> None:
        """Remove `key` from all open transactions, because its offset was deleted."""
        if self.writers.pop(key, None):
            for written in self._producers.values():
                written.pop(key, None)

    def end(self, producer_id: ProducerId) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """Remove a producer's open transaction.

        Yield the keys and offsets that the transaction wrote and no later commit has replaced. The caller
        must iterate to the end.
        """
        for key, committed in self._producers.pop(producer_id, {}).items():
            self.writers[key] -= 1
            if not self.writers[key]:
                del self.writers[key]
            if committed is not None:
                yield key, committed
