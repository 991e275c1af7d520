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
        """Return the member after its next heartbeat. Without changes, return this object.

        If the member has not reached `target_epoch` yet, it gets `target`, its partitions in the target
        assignment. If it has, it keeps its partitions. In both cases it gets only topics in `subscribed`.
        Members share partitions, so a member never waits until another member revokes a partition.
        """
        if self.epoch != target_epoch:
            assigned = _only(target, subscribed)
            return self._replace(epoch=target_epoch, previous_epoch=self.epoch, assigned=assigned)
        kept = _only(self.assigned, subscribed)
        return self if kept == self.assigned else self._replace(assigned=kept)


def _only(partitions: Partitions, topics: Set[TopicId]) -> Partitions:
    return {topic: numbers for topic, numbers in partitions.items() if topic in topics}
