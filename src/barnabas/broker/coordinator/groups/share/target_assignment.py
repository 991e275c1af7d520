"""Follows up a change of a share group: a new group epoch, new partitions to initialize, an assignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from barnabas.base.text import logger_of
from barnabas.broker.coordinator.groups.assignors.simple import ShareMemberSpec, assign
from barnabas.broker.coordinator.groups.consumer.target_assignment import LARGE
from barnabas.broker.coordinator.groups.modern.member import NOTHING, Partitions
from barnabas.broker.coordinator.groups.modern.topics import Topics
from barnabas.broker.coordinator.groups.share.draft import ShareGroupDraft
from barnabas.broker.coordinator.groups.share.group import ShareGroup
from barnabas.broker.coordinator.groups.share.initialization import InitializationStates
from barnabas.broker.coordinator.groups.share.member import ShareMember

logger = logger_of(__name__, is_limited=True)


class ShareAssignmentInputs(NamedTuple):
    """The inputs of a target assignment. They are immutable, so a thread can compute the assignment."""

    members: Mapping[str, ShareMember]
    targets: Mapping[str, Partitions]
    partitions: InitializationStates
    topics: Topics

    def assign(self) -> dict[str, Partitions]:
        """Return the new target of each member whose target changes."""
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
        """Store `targets`, except those of members that have left."""
        draft.put_targets(targets)


class _Verified(NamedTuple):
    """The state in which a group was last found to be up to date. While it is the same, skip the check."""

    metadata_hash: int
    topics: object
    partitions: InitializationStates


class ShareTargetAssigner:
    """Advances the share groups of one shard, and writes its decisions into drafts.

    Args:
        topics: the topics of the cluster.
        put_off: begins to compute the target of the large group with this id, and stores it later.
    """

    def __init__(self, topics: Topics, put_off: Callable[[str], None]) -> None:
        self._topics = topics
        self._put_off = put_off
        self._verified: dict[str, _Verified] = {}

    def is_outdated(self, group: ShareGroup) -> bool:
        """Whether the group needs a new epoch.

        It does if subscribed topics have changed since its last epoch, or have partitions that are neither
        initialized nor initializing.
        """
        verified = _Verified(group.metadata_hash, self._topics.names, group.partitions)
        last = self._verified.get(group.group_id)
        if (
            last is not None
            and last.metadata_hash == verified.metadata_hash
            and last.topics is verified.topics
            and last.partitions is verified.partitions
        ):
            return False
        names = group.topics_in_use()
        if self._topics.metadata_hash(names) != group.metadata_hash:
            return True
        if group.partitions.missing(self._topics.images(names)):
            return True
        self._verified[group.group_id] = verified
        return False

    def forget(self, group_id: str) -> None:
        """Remove all state of a deleted group."""
        self._verified.pop(group_id, None)

    def raise_epoch(self, draft: ShareGroupDraft) -> None:
        """Raise the group epoch in the draft, because the members need a new target assignment."""
        epoch = draft.group.epoch + 1
        draft.put_epoch(epoch, self._topics.metadata_hash(draft.group.topics_in_use()))
        logger.info("share group %s: epoch %d", draft.group_id, epoch)

    def initialize(self, draft: ShareGroupDraft) -> None:
        """Record new partitions of subscribed topics as initializing. Members do not get them yet."""
        partitions = draft.group.partitions
        missing = partitions.missing(self._topics.images(draft.group.topics_in_use()))
        if missing:
            draft.put_partitions(partitions.with_initializing(missing))

    def assign(self, draft: ShareGroupDraft) -> None:
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
        draft.put_targets(self.inputs(group).assign())
        draft.put_assignment_epoch(group.epoch)

    def inputs(self, group: ShareGroup) -> ShareAssignmentInputs:
        """Return the inputs of the target assignment for the group's epoch."""
        return ShareAssignmentInputs(
            dict(group.members), dict(group.targets), group.partitions, self._topics.snapshot()
        )

    def reconcile(self, draft: ShareGroupDraft, member_id: str) -> ShareMember:
        """Give a member its target, and write the change into the draft. Return the new member."""
        group = draft.group
        member = group.members[member_id]
        moved = member.reconciled(
            group.target(member_id), group.assignment_epoch, self._topics.ids(member.topics)
        )
        if moved != member:
            draft.put_current(moved)
        return moved

    def _is_large(self, group: ShareGroup) -> bool:
        """Whether the computation of a target takes too long for one turn of the event loop."""
        size = len(group.members)
        return size > LARGE or size + self._topics.partition_count(group.topics_in_use()) > LARGE
