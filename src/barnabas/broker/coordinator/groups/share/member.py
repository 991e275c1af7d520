"""A member of a share group as an immutable value."""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from barnabas.base.types import TopicId
from barnabas.broker.coordinator.groups.modern.member import NOTHING, Partitions


class ShareMember(NamedTuple):
    """The stored state of a share group's member."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()

    # --- its steps ---
    epoch: int = 0
    #: the member still sends this epoch if the response with `epoch` was lost
    previous_epoch: int = -1
    assigned: Partitions = NOTHING

    def reconciled(self, target: Partitions, target_epoch: int, subscribed: Set[TopicId]) -> ShareMember:
        """Return the member with the epoch and the partitions that it gets in the next response.

        If nothing changes, return this object.

        - If the member's epoch is not `target_epoch`: the member gets `target_epoch`, and `target`, its
          partitions in the target assignment.
        - If the member's epoch is `target_epoch`: the member keeps its partitions.

        In both cases partitions of topics that are not in `subscribed` are left out. Members share
        partitions, so a member never waits until another member revokes a partition.
        """
        if self.epoch != target_epoch:
            assigned = _only(target, subscribed)
            return self._replace(epoch=target_epoch, previous_epoch=self.epoch, assigned=assigned)
        kept = _only(self.assigned, subscribed)
        return self if kept == self.assigned else self._replace(assigned=kept)


def _only(partitions: Partitions, topics: Set[TopicId]) -> Partitions:
    return {topic: numbers for topic, numbers in partitions.items() if topic in topics}
