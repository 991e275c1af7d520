"""The assignor `simple` of share groups: members share the partitions evenly (KIP-932).

Each partition goes to the same number of members: one, unless there are more members than partitions. The
members' numbers of partitions differ by one at most, and as few partitions move as possible. If subscriptions
differ, the assignor does this for the subscribers of each topic.

Apache Kafka 4.2 also gives members equal numbers of partitions, or one more. Kafka can choose other members
for the additional partition. Here, members that have more partitions already come first, then those with the
fewest partitions of other topics.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from barnabas.base.types import TopicId

#: partitions by topic id; topics without partitions are left out
_Partitions: TypeAlias = Mapping[TopicId, frozenset[int]]
_Partition: TypeAlias = tuple[TopicId, int]


class ShareMemberSpec(NamedTuple):
    """The data of a member that the assignor uses: its subscription and its last target assignment."""

    #: subscribed topics
    topics: frozenset[TopicId]
    #: the member's last target
    assigned: _Partitions


def assign(members: Mapping[str, ShareMemberSpec], partitions: _Partitions) -> dict[str, _Partitions]:
    """Return the target assignment of every member, by member id.

    A member whose target does not change gets the same object, `assigned`, again.

    The function is pure, and the order of its arguments does not matter.

    Args:
        members: the members by member id.
        partitions: the partitions that may be assigned.
    """
    order = sorted(members)
    wanted = [members[member_id].topics & partitions.keys() for member_id in order]
    draft = _Draft([members[member_id].assigned for member_id in order])
    topics = sorted(frozenset().union(*wanted))
    if all(len(topics) == len(names) for names in wanted):
        draft.share([(topic, n) for topic in topics for n in sorted(partitions[topic])], range(len(order)))
    else:
        for topic in topics:
            subscribers = [member for member, names in enumerate(wanted) if topic in names]
            draft.share([(topic, number) for number in sorted(partitions[topic])], subscribers)
    targets = {}
    for member_id, target in zip(order, draft.result(), strict=True):
        before = members[member_id].assigned
        targets[member_id] = before if before == target else target
    return targets


class _Draft:
    """The assignment while it is computed. A member is an index into the list of sorted member ids.

    `before` has the last target assignment of each member, in the same order.
    """

    def __init__(self, before: Sequence[_Partitions]) -> None:
        self._before = before
        self._owned: list[set[_Partition]] = [set() for _ in before]

    def share(self, partitions: Sequence[_Partition], members: Sequence[int]) -> None:
        """Assign `partitions` evenly to `members`, and keep last targets where possible.

        The draft must not contain partitions of these topics for these members yet.
        """
        if not partitions or not members:
            return
        sharing = -(-len(members) // len(partitions))
        owned, holders = self._kept(partitions, members)
        quotas = self._quotas(sharing * len(partitions), owned)
        _give_up_surplus(owned, holders, quotas, sharing)
        _hand_out(owned, holders, quotas, sharing)
        for member, mine in owned.items():
            self._owned[member] |= mine

    def result(self) -> list[_Partitions]:
        """Return the partitions of each member by topic id."""
        targets: list[_Partitions] = []
        for owned in self._owned:
            topics: dict[TopicId, list[int]] = {}
            for topic, number in sorted(owned):
                topics.setdefault(topic, []).append(number)
            targets.append({topic: frozenset(numbers) for topic, numbers in topics.items()})
        return targets

    def _kept(
        self, partitions: Sequence[_Partition], members: Sequence[int]
    ) -> tuple[dict[int, set[_Partition]], dict[_Partition, set[int]]]:
        """Return which of `partitions` each member had in its last target assignment, by member.

        Also return the members that had each of `partitions`, by partition.
        """
        holders: dict[_Partition, set[int]] = {partition: set() for partition in partitions}
        topics = {topic for topic, _ in partitions}
        owned: dict[int, set[_Partition]] = {}
        for member in members:
            before = self._before[member]
            owned[member] = {
                partition
                for topic in topics & before.keys()
                for number in before[topic]
                if (partition := (topic, number)) in holders
            }
            for partition in owned[member]:
                holders[partition].add(member)
        return owned, holders

    def _quotas(self, total: int, owned: Mapping[int, set[_Partition]]) -> dict[int, int]:
        """Return the number of partitions that each member of `owned` gets.

        The sum is `total`, and the numbers differ by at most one. The members that get one partition more are
        those with the most partitions in `owned`. At equal numbers, members with the fewest partitions of
        other topics come first.
        """
        least, longer = divmod(total, len(owned))
        ranked = sorted(owned, key=lambda member: (-len(owned[member]), len(self._owned[member]), member))
        return {member: least + (rank < longer) for rank, member in enumerate(ranked)}


def _give_up_surplus(
    owned: Mapping[int, set[_Partition]],
    holders: Mapping[_Partition, set[int]],
    quotas: Mapping[int, int],
    sharing: int,
) -> None:
    """Take partitions from members above their quotas. Then take partitions that too many members share.

    Args:
        owned: partitions of each member; changed.
        holders: members of each partition; changed.
        quotas: the most partitions of each member.
        sharing: the most members of a partition.
    """

    def take(member: int, partition: _Partition) -> None:
        owned[member].remove(partition)
        holders[partition].remove(member)

    for member, mine in owned.items():
        surplus = len(mine) - quotas[member]
        if surplus > 0:
            # Take first the partitions that most members share.
            for partition in sorted(mine, key=lambda p: (-len(holders[p]), p))[:surplus]:
                take(member, partition)
    for partition, sharers in holders.items():
        if len(sharers) > sharing:
            for member in sorted(sharers, key=lambda m: (-len(owned[m]), m))[: len(sharers) - sharing]:
                take(member, partition)


def _hand_out(
    owned: Mapping[int, set[_Partition]],
    holders: Mapping[_Partition, set[int]],
    quotas: Mapping[int, int],
    sharing: int,
) -> None:
    """Add members to partitions until each partition has `sharing` members, and each member its quota.

    The sum of the quotas must be `sharing` times the number of partitions. No member may be above its quota,
    and no partition above `sharing`. `owned` and `holders` are changed.
    """
    takers = deque(member for member, mine in owned.items() if len(mine) < quotas[member])

    def give(partition: _Partition, member: int) -> None:
        owned[member].add(partition)
        holders[partition].add(member)

    def find_taker(partition: _Partition) -> int | None:
        """Return the next member below its quota that does not have the partition; None if there is none."""
        for _ in range(len(takers)):
            member = takers.popleft()
            if partition not in owned[member]:
                return member
            takers.append(member)
        return None

    for partition, sharers in holders.items():
        while len(sharers) < sharing and (taker := find_taker(partition)) is not None:
            give(partition, taker)
            if len(owned[taker]) < quotas[taker]:
                takers.append(taker)
    # Each member left here has all partitions that still lack a member. So it needs a partition `other` that
    # has enough members. One of these members, `giver`, gives up `other` and gets the partition that lacks a
    # member instead.
    for partition, sharers in holders.items():
        while len(sharers) < sharing:
            member = takers.popleft()
            other, giver = next(
                (other, giver)
                for other, others in holders.items()
                if member not in others
                for giver in sorted(others - sharers)
            )
            owned[giver].remove(other)
            holders[other].remove(giver)
            give(other, member)
            give(partition, giver)
            if len(owned[member]) < quotas[member]:
                takers.append(member)
