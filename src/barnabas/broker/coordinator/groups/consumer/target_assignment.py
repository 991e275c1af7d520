"""Follows up a change of a consumer group: a new group epoch, a target assignment, members' steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from barnabas.base.text import logger_of
from barnabas.broker.coordinator.groups.assignors import ASSIGNORS, Assignor, MemberSpec
from barnabas.broker.coordinator.groups.consumer.draft import GroupDraft
from barnabas.broker.coordinator.groups.consumer.group import ConsumerGroup, ResolvedRegex
from barnabas.broker.coordinator.groups.consumer.member import ConsumerMember
from barnabas.broker.coordinator.groups.modern.member import NOTHING, Partitions
from barnabas.broker.coordinator.groups.modern.topics import Topics

logger = logger_of(__name__, is_limited=True)

#: the most members plus partitions for which the event loop computes a target: one or two milliseconds
LARGE = 500


class AssignmentInputs(NamedTuple):
    """The inputs of a target assignment. They are immutable, so a thread can compute the assignment."""

    assignor: Assignor
    members: Mapping[str, ConsumerMember]
    targets: Mapping[str, Partitions]
    regexes: Mapping[str, ResolvedRegex]
    topics: Topics

    def assign(self) -> dict[str, Partitions]:
        """Return the new target of each member whose target changes."""
        names: frozenset[str] = frozenset()
        specs = {}
        for member in self.members.values():
            resolved = self.regexes.get(member.regex)
            subscription = member.topics if resolved is None else member.topics | resolved.topics
            assigned = self.topics.named(self.targets.get(member.member_id, NOTHING))
            specs[member.member_id] = MemberSpec(subscription, member.instance_id, member.rack_id, assigned)
            if not subscription <= names:
                names |= subscription
        changed = {}
        for member_id, assignment in self.assignor(specs, self.topics.specs(names)).items():
            target = self.topics.identified(assignment)
            if target != self.targets.get(member_id):
                changed[member_id] = target
        return changed

    def put(self, targets: Mapping[str, Partitions], draft: GroupDraft) -> None:
        """Store `targets`, except those of members that have left since the computation.

        If a static member has restarted with a new member id meanwhile, its successor gets its target.
        """
        for member_id, target in targets.items():
            if member_id in draft.group.members:
                draft.put_target(member_id, target)
            elif (successor := draft.group.holder(self.members[member_id].instance_id)) is not None:
                draft.put_target(successor.member_id, target)


class TargetAssigner:
    """Advances the groups of one shard, and writes its decisions into drafts.

    Args:
        topics: the topics of the cluster.
        assignors: returns the names of the enabled assignors, the default first.
        put_off: begins to compute the target of the large group with this id, and stores it later.
    """

    def __init__(
        self, topics: Topics, assignors: Callable[[], Sequence[str]], put_off: Callable[[str], None]
    ) -> None:
        self._topics = topics
        self._assignors = assignors
        self._put_off = put_off
        #: by group: its metadata hash, and the topics of the cluster for which the hash was last checked
        self._verified: dict[str, tuple[int, object]] = {}

    def is_outdated(self, group: ConsumerGroup) -> bool:
        """Whether topics that a group subscribes to have changed since its last epoch."""
        verified = (group.metadata_hash, self._topics.names)
        last = self._verified.get(group.group_id)
        if last is not None and last[0] == verified[0] and last[1] is verified[1]:
            return False
        if self._topics.metadata_hash(group.topics_in_use()) != group.metadata_hash:
            return True
        self._verified[group.group_id] = verified
        return False

    def forget(self, group_id: str) -> None:
        """Remove all state of a deleted group."""
        self._verified.pop(group_id, None)

    def raise_epoch(self, draft: GroupDraft) -> None:
        """Raise the group epoch in the draft, because the members need a new target assignment."""
        epoch = draft.group.epoch + 1
        draft.put_epoch(epoch, self._topics.metadata_hash(draft.group.topics_in_use()))
        logger.info("group %s: epoch %d", draft.group_id, epoch)

    def assign(self, draft: GroupDraft) -> None:
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
        for member_id, target in self.inputs(group).assign().items():
            draft.put_target(member_id, target)
        draft.put_assignment_epoch(group.epoch)

    def inputs(self, group: ConsumerGroup) -> AssignmentInputs:
        """Return the inputs of the target assignment for the group's epoch."""
        return AssignmentInputs(
            ASSIGNORS[group.preferred_assignor() or self._assignors()[0]],
            dict(group.members),
            dict(group.targets),
            dict(group.regexes),
            self._topics.snapshot(),
        )

    def _is_large(self, group: ConsumerGroup) -> bool:
        """Whether the computation of a target takes too long for one turn of the event loop."""
        size = len(group.members)
        return size > LARGE or size + self._topics.partition_count(group.topics_in_use()) > LARGE

    def reconcile(
        self, draft: GroupDraft, member_id: str, owned: Partitions | None, *, subscription_changed: bool
    ) -> ConsumerMember:
        """Advance a member by one step towards its target: see `ConsumerMember.reconciled`.

        Write the change into the draft, and return the new member.
        """
        group = draft.group
        member = group.members[member_id]
        if member.is_reconciled(group.assignment_epoch) and not subscription_changed:
            return member
        moved = member.reconciled(
            group.target(member_id),
            group.assignment_epoch,
            owned=owned,
            subscribed=self._topics.ids(group.subscription(member)),
            subscription_changed=subscription_changed,
            is_owned=group.is_owned,
        )
        if moved != member:
            draft.put_current(moved)
        return moved
