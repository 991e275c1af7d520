"""Raises the group epoch after a change of a group, and computes the target assignment for the new epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from barnabas.base.text import logger_of
from barnabas.broker.coordinator.groups.modern.draft import ModernGroupDraft
from barnabas.broker.coordinator.groups.modern.group import ModernGroup
from barnabas.broker.coordinator.groups.modern.member import Partitions
from barnabas.broker.coordinator.groups.modern.topics import Topics

logger = logger_of(__name__, is_limited=True)

#: the most members plus partitions for which the event loop computes a target: one or two milliseconds
LARGE = 500

G = TypeVar("G", bound=ModernGroup[Any])
D = TypeVar("D", bound=ModernGroupDraft[Any, Any])
D_contra = TypeVar("D_contra", contravariant=True)


class AssignmentInputs(Protocol[D_contra]):
    """The data from which a group's target assignment is computed: members, subscriptions and partitions.

    These data are immutable, so a thread can compute the assignment.
    """

    def assign(self) -> dict[str, Partitions]:
        """Return the new target assignment of each member whose target changes, by member id."""

    def put(self, targets: Mapping[str, Partitions], draft: D_contra) -> None:
        """Write `targets` into the draft, except those of members that have left since the computation."""


class TargetAssigner(Generic[G, D]):
    """Raises group epochs and computes target assignments, for the groups of one shard.

    The assigner writes its decisions into drafts.

    Args:
        topics: the topics of the cluster.
        put_off: called with the id of a large group. It begins to compute the group's target assignment, and
            stores it later.
    """

    def __init__(self, topics: Topics, put_off: Callable[[str], None]) -> None:
        self._topics = topics
        self._put_off = put_off
        #: by group: its metadata hash, and the objects for which it was last found to be up to date
        self._verified: dict[str, tuple[int, object, object]] = {}

    def inputs(self, group: G) -> AssignmentInputs[D]:
        """Return the data from which the target assignment for the group's epoch is computed."""
        raise NotImplementedError

    def is_outdated(self, group: G) -> bool:
        """Whether the group needs a new epoch: subscribed topics have changed since its last epoch."""
        hashed, names, other = self._facts(group)
        last = self._verified.get(group.group_id)
        if last is not None and last[0] == hashed and last[1] is names and last[2] is other:
            return False
        if self._has_changed(group):
            return True
        self._verified[group.group_id] = hashed, names, other
        return False

    def _facts(self, group: G) -> tuple[int, object, object]:
        """Return the values on which the result of `is_outdated` depends.

        They are the group's metadata hash, the topic names, and, for a share group, its share partitions
        (None for a consumer group). Each change of a topic gives a new object of topic names. While all three
        values stay the same, `is_outdated` need not compute the hash of the topics again.
        """
        return group.metadata_hash, self._topics.names, None

    def _has_changed(self, group: G) -> bool:
        return self._topics.metadata_hash(group.topics_in_use()) != group.metadata_hash

    def forget(self, group_id: str) -> None:
        """Remove all state of a deleted group."""
        self._verified.pop(group_id, None)

    def raise_epoch(self, draft: D, above: int = 0) -> None:
        """Raise the group epoch in the draft, above `above` at least.

        The members then need a new target assignment.
        """
        epoch = max(draft.group.epoch, above) + 1
        draft.put_epoch(epoch, self._topics.metadata_hash(draft.group.topics_in_use()))
        logger.info("group %s: epoch %d", draft.group_id, epoch)

    def assign(self, draft: D) -> None:
        """Compute the target assignment for the group's epoch, if there is none yet.

        For a large group, only begin the computation: a thread computes the target.
        """
        group = draft.group
        if group.epoch <= group.assignment_epoch:
            return
        if self._is_large(group):
            if not group.assignment_epoch:
                # No member has epoch 0: the first members have no partitions in epoch 1, and a target in 2.
                draft.put_assignment_epoch(group.epoch)
                self.raise_epoch(draft)
            self._put_off(group.group_id)
            return
        inputs = self.inputs(group)
        inputs.put(inputs.assign(), draft)
        draft.put_assignment_epoch(group.epoch)

    def _is_large(self, group: G) -> bool:
        """Whether the computation of a target takes too long for one turn of the event loop."""
        size = len(group.members)
        return size > LARGE or size + self._topics.partition_count(group.topics_in_use()) > LARGE
