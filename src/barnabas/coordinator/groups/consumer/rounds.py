"""Reacts to a change of a consumer group: a new group epoch, a target assignment, members' steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.coordinator.groups.assignors import ASSIGNORS, MemberSpec
from barnabas.coordinator.groups.consumer.draft import GroupDraft
from barnabas.coordinator.groups.consumer.group import ConsumerGroup
from barnabas.coordinator.groups.consumer.member import ConsumerMember, Partitions
from barnabas.coordinator.groups.consumer.topics import Topics
from barnabas.text import logger_of

logger = logger_of(__name__, is_limited=True)


class Rounds:
    """Advances the groups of one shard. Its decisions are written into drafts."""

    def __init__(self, topics: Topics, assignors: Callable[[], Sequence[str]]) -> None:
        """`assignors` are the names of those served, the one to take by default first."""
        self._topics = topics
        self._assignors = assignors
        #: by group: the topics of the cluster for which its metadata hash was found to hold
        self._verified: dict[str, tuple[int, object]] = {}

    def is_outdated(self, group: ConsumerGroup) -> bool:
        """Whether topics that a group subscribes to have changed since its last epoch."""
        verified = (group.metadata_hash, self._topics.names)
        last = self._verified.get(group.group_id)
        if last is not None and last[0] == verified[0] and last[1] is verified[1]:
            return False
        if self._topics.metadata_hash(group.subscribed_topics()) != group.metadata_hash:
            return True
        self._verified[group.group_id] = verified
        return False

    def forget(self, group_id: str) -> None:
        """The group was deleted."""
        self._verified.pop(group_id, None)

    def raise_epoch(self, draft: GroupDraft) -> None:
        """Raise the group epoch: the members need another target assignment."""
        epoch = draft.group.epoch + 1
        draft.put_epoch(epoch, self._topics.metadata_hash(draft.group.subscribed_topics()))
        logger.info("group %s: epoch %d", draft.group_id, epoch)

    def assign(self, draft: GroupDraft) -> None:
        """Compute the target of the group's epoch, if there is none yet."""
        group = draft.group
        if group.epoch <= group.assignment_epoch:
            return
        name = group.preferred_assignor() or self._assignors()[0]
        specs = {
            member.member_id: MemberSpec(
                group.subscription(member),
                member.instance_id,
                member.rack_id,
                self._topics.named(group.target(member.member_id)),
            )
            for member in group.members.values()
        }
        assignments = ASSIGNORS[name](specs, self._topics.specs(group.subscribed_topics()))
        for member_id, assignment in assignments.items():
            target = self._topics.identified(assignment)
            if target != group.targets.get(member_id):
                draft.put_target(member_id, target)
        draft.put_assignment_epoch(group.epoch)

    def reconcile(
        self, draft: GroupDraft, member_id: str, owned: Partitions | None, *, subscription_changed: bool
    ) -> ConsumerMember:
        """Advance a member by one step. Returns its state after it."""
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
