"""The target assignments of share groups, and the partitions that they initialize."""

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
    """The data from which a share group's target assignment is computed (see `AssignmentInputs`)."""

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
        """Write `targets` into the draft, except those of members that have left since the computation."""
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
        """Give a member its target assignment: see `ShareMember.reconciled`.

        Write the change into the draft, and return the new member. If nothing changes, return the present
        member.
        """
        group = draft.group
        member = group.members[member_id]
        moved = member.reconciled(
            group.target(member_id), group.assignment_epoch, self._topics.ids(member.topics)
        )
        if moved != member:
            draft.put_current(moved)
        return moved
