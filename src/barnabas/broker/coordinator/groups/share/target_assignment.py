"""Computes the target assignments of share groups, and begins to initialize new partitions of their topics.

The target assignment says which partitions each member is to consume. It has only partitions whose first
state the share coordinator has stored (`InitializationStates`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.broker.coordinator.groups.assignors.simple import ShareMemberSpec, assign
from barnabas.broker.coordinator.groups.modern.member import NOTHING, Partitions
from barnabas.broker.coordinator.groups.modern.target_assignment import TargetAssigner
from barnabas.broker.coordinator.groups.modern.topics import Topics
from barnabas.broker.coordinator.groups.share.draft import ShareGroupDraft
from barnabas.broker.coordinator.groups.share.group import ShareGroup
from barnabas.broker.coordinator.groups.share.initialization import InitializationStates
from barnabas.broker.coordinator.groups.share.member import ShareMember


class ShareAssignmentInputs(NamedTuple):
    """The data from which a share group's target assignment is computed. A thread can read them.

    Attributes:
        members: the members of the group by id.
        targets: the partitions of each member in the last target assignment, by member id.
        partitions: the partitions of the group: initializing, initialized or deleting.
        topics: the topics of the cluster.
    """

    members: Mapping[str, ShareMember]
    targets: Mapping[str, Partitions]
    partitions: InitializationStates
    topics: Topics

    def assign(self) -> dict[str, Partitions]:
        """Return the new target assignment of each member whose target changes, by member id."""
        ids: dict[frozenset[str], frozenset[bytes]] = {}
        specs = {}
        for member in self.members.values():
            if member.topics not in ids:
                ids[member.topics] = self.topics.ids(member.topics)
            specs[member.member_id] = ShareMemberSpec(
                ids[member.topics], self.targets.get(member.member_id, NOTHING)
            )
        assignable = {topic: found.partitions for topic, found in self.partitions.initialized.items()}
        return {
            member_id: target
            for member_id, target in assign(specs, assignable).items()
            if target != self.targets.get(member_id)
        }

    def put(self, targets: Mapping[str, Partitions], draft: ShareGroupDraft) -> None:
        """Write new target assignments into the draft of the group.

        Leave out members that have left the group since the computation.

        Args:
            targets: the result of `assign`.
            draft: a pending change of the group, whose records the caller stores.
        """
        for member_id, target in targets.items():
            if member_id in draft.group.members:
                draft.put_target(member_id, target)


class ShareTargetAssigner(TargetAssigner[ShareGroup, ShareGroupDraft]):
    """Computes the target assignments of one shard's share groups, and moves members to them.

    The assigner also raises group epochs. It changes only a draft of a group, and the caller stores the
    draft's records. A group also needs a new epoch if it has partitions that are neither initialized nor
    initializing.
    """

    def _facts(self, group: ShareGroup) -> tuple[int, object, object]:
        return group.metadata_hash, self._topics.names, group.partitions

    def _has_changed(self, group: ShareGroup) -> bool:
        return super()._has_changed(group) or bool(
            group.partitions.missing(self._topics.images(group.topics_in_use()))
        )

    def initialize(self, draft: ShareGroupDraft) -> None:
        """Record new partitions of subscribed topics as initializing. Members do not get them yet."""
        partitions = draft.group.partitions
        missing = partitions.missing(self._topics.images(draft.group.topics_in_use()))
        if missing:
            draft.put_partitions(partitions.with_initializing(missing))

    def inputs(self, group: ShareGroup) -> ShareAssignmentInputs:
        return ShareAssignmentInputs(
            dict(group.members), dict(group.targets), group.partitions, self._topics.snapshot()
        )

    def reconcile(self, draft: ShareGroupDraft, member_id: str) -> ShareMember:
        """Give a member the partitions and the epoch of its target assignment.

        Write the change into the draft, and return the member after the change. If nothing changes, return
        the present member. `ShareMember.reconciled` has the rules.
        """
        group = draft.group
        member = group.members[member_id]
        moved = member.reconciled(
            group.target(member_id), group.assignment_epoch, self._topics.ids(member.topics)
        )
        if moved != member:
            draft.put_current(moved)
        return moved
