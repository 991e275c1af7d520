"""A member of a consumer group as an immutable value, and its steps towards the target assignment.

    STABLE ──► UNREVOKED_PARTITIONS ──► STABLE or UNRELEASED_PARTITIONS ──► STABLE
               (it has to give up       (it waits for partitions
               partitions first)        that others have to give up)

A member moves to the epoch of the target when it has revoked all partitions that its target lacks. It gets a
new partition when no other member owns that partition. So two members never own one partition at once.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from enum import IntEnum
from typing import NamedTuple

from barnabas.base.types import TopicId
from barnabas.broker.coordinator.groups.classic.member import Protocol
from barnabas.broker.coordinator.groups.modern.member import NOTHING, Partitions

#: a static member leaves temporarily
LEAVE_STATIC_EPOCH = -2


class MemberState(IntEnum):
    """The states of a member, with their numbers in the stored record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    #: any other number, written by a later version that has more states
    UNKNOWN = 127


class ClassicSide(NamedTuple):
    """The fields from JoinGroup that only members of the classic protocol have."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]


class ConsumerMember(NamedTuple):
    """The stored state of a consumer group's member."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    #: empty for none
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    #: None for members of the consumer protocol
    classic: ClassicSide | None = None

    # --- its steps ---
    epoch: int = 0
    #: the member still sends this epoch if the response with `epoch` was lost
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NOTHING
    #: partitions that the member has to revoke, and may still own
    revoking: Partitions = NOTHING

    def at(self, epoch: int) -> ConsumerMember:
        """Return a copy of the member in another epoch. Its current epoch becomes `previous_epoch`."""
        return self._replace(epoch=epoch, previous_epoch=self.epoch)

    def is_reconciled(self, target_epoch: int) -> bool:
        """Whether the member has reached its target in `target_epoch`."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def reconciled(
        self,
        target: Partitions,
        target_epoch: int,
        *,
        owned: Partitions | None,
        subscribed: Set[TopicId],
        subscription_changed: bool,
        is_owned: Callable[[TopicId, int], bool],
    ) -> ConsumerMember:
        """Return the member after one step towards its target; the same member if there is no step.

        Args:
            target: the member's target assignment in `target_epoch`.
            target_epoch: the assignment epoch of the group.
            owned: the partitions that the member reports as owned; None if it reports nothing.
            subscribed: the topics that the member subscribes to. It keeps no partitions of other topics.
            subscription_changed: whether the member's request changed these topics.
            is_owned: returns whether any member owns a partition, or may still own it.
        """
        if self.state is MemberState.STABLE and self.epoch == target_epoch:
            return self._without_unsubscribed(owned, subscribed) if subscription_changed else self
        if self.state is MemberState.UNREVOKED_PARTITIONS and _may_own(owned, self.revoking):
            return self._without_unsubscribed(owned, subscribed) if subscription_changed else self
        goal = {topic: partitions for topic, partitions in target.items() if topic in subscribed}
        kept = common(self.assigned, goal)
        surplus = without(self.assigned, kept)
        if surplus and _may_own(owned, surplus):
            return self.at(self.epoch)._replace(
                state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=surplus
            )
        wanted = without(goal, kept)
        free = {
            topic: frozenset(
                # Partitions that the member itself was revoking and now gets back count as free.
                p
                for p in partitions
                if not is_owned(topic, p) or p in self.revoking.get(topic, ())
            )
            for topic, partitions in wanted.items()
        }
        waits = any(free[topic] != partitions for topic, partitions in wanted.items())
        return self.at(target_epoch)._replace(
            state=MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE,
            assigned=union(kept, free),
            revoking=NOTHING,
        )

    def _without_unsubscribed(self, owned: Partitions | None, subscribed: Set[TopicId]) -> ConsumerMember:
        """Return the member without the partitions of topics to which it no longer subscribes.

        If the member may still own such partitions, it must revoke them before it gets a new target. If there
        are no such partitions, return the member itself.

        `subscribed` are the topics to which the member subscribes. `owned` are the partitions that the member
        reports as owned; None if it reports nothing.
        """
        kept = {topic: partitions for topic, partitions in self.assigned.items() if topic in subscribed}
        if len(kept) == len(self.assigned):
            return self
        revoking = union(self.revoking, without(self.assigned, kept))
        if not _may_own(owned, revoking):
            return self.at(self.epoch)._replace(assigned=kept)
        return self.at(self.epoch)._replace(
            state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoking
        )


def common(one: Partitions, other: Partitions) -> Partitions:
    """Return the partitions that are in both mappings."""
    both = {topic: partitions & other.get(topic, frozenset()) for topic, partitions in one.items()}
    return {topic: partitions for topic, partitions in both.items() if partitions}


def without(one: Partitions, other: Partitions) -> Partitions:
    """Return the partitions in `one` that are not in `other`."""
    left = {topic: partitions - other.get(topic, frozenset()) for topic, partitions in one.items()}
    return {topic: partitions for topic, partitions in left.items() if partitions}


def union(one: Partitions, other: Partitions) -> Partitions:
    """Return the partitions that are in at least one of the mappings."""
    topics = {
        topic: one.get(topic, frozenset()) | other.get(topic, frozenset()) for topic in {**one, **other}
    }
    return {topic: partitions for topic, partitions in topics.items() if partitions}


def _may_own(owned: Partitions | None, partitions: Partitions) -> bool:
    """Whether a member may still own one of `partitions`.

    `owned` are the partitions that the member reports as owned. If it reports nothing (None), it may own any
    partition.
    """
    return owned is None or bool(common(partitions, owned))
