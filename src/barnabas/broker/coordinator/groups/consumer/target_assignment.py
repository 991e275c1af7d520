"""The target assignments of consumer groups, and the steps of their members."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from barnabas.broker.coordinator.groups.assignors import ASSIGNORS, Assignor, MemberSpec
from barnabas.broker.coordinator.groups.consumer.draft import GroupDraft
from barnabas.broker.coordinator.groups.consumer.group import ConsumerGroup, ResolvedRegex
from barnabas.broker.coordinator.groups.consumer.member import ConsumerMember
from barnabas.broker.coordinator.groups.modern.member import NOTHING, Partitions
from barnabas.broker.coordinator.groups.modern.target_assignment import TargetAssigner
from barnabas.broker.coordinator.groups.modern.topics import Topics


class ConsumerAssignmentInputs(NamedTuple):
    """The data from which a consumer group's target assignment is computed (see `AssignmentInputs`)."""

    assignor: Assignor
    members: Mapping[str, ConsumerMember]
    targets: Mapping[str, Partitions]
    regexes: Mapping[str, ResolvedRegex]
    topics: Topics

    def assign(self) -> dict[str, Partitions]:
        """Return the new target assignment of each member whose target changes, by member id."""
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
        """Write `targets` into the draft, except those of members that have left since the computation.

        If a static member has restarted with a new member id meanwhile, the member with the new id gets the
        target.
        """
        for member_id, target in targets.items():
            if member_id in draft.group.members:
                draft.put_target(member_id, target)
            elif (successor := draft.group.holder(self.members[member_id].instance_id)) is not None:
                draft.put_target(successor.member_id, target)


class ConsumerTargetAssigner(TargetAssigner[ConsumerGroup, GroupDraft]):
    """Computes the target assignments of one shard's consumer groups, and moves members towards them.

    The assigner also raises group epochs. It changes only a draft of a group, and the caller stores the
    draft's records.

    Args:
        topics: the topics of the cluster.
        assignors: returns the names of the enabled assignors, the default first.
        put_off: called with the id of a large group. This function must start a task that computes and stores
            the group's target assignment, and return at once.
    """

    def __init__(
        self, topics: Topics, assignors: Callable[[], Sequence[str]], put_off: Callable[[str], None]
    ) -> None:
        super().__init__(topics, put_off)
        self._assignors = assignors

    def inputs(self, group: ConsumerGroup) -> ConsumerAssignmentInputs:
        return ConsumerAssignmentInputs(
            ASSIGNORS[group.preferred_assignor() or self._assignors()[0]],
            dict(group.members),
            dict(group.targets),
            dict(group.regexes),
            self._topics.snapshot(),
        )

    def reconcile(
        self, draft: GroupDraft, member_id: str, owned: Partitions | None, *, subscription_changed: bool
    ) -> ConsumerMember:
        """Advance a member by one step towards its target: see `ConsumerMember.reconciled`.

        Write the change into the draft, and return the new member. `owned` are the partitions that the member
        reports as owned; None if it reports nothing. `subscription_changed` says whether the member's request
        changed its topics.
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
