"""The assignor `simple` of share groups: members share the partitions evenly (KIP-932).

Each partition goes to the same number of members: one, unless there are more members than partitions. The
members' counts differ by one at most. As few partitions move as this allows. If subscriptions differ, this
holds for the subscribers of each topic, and for the whole as far as the topics allow.

Apache Kafka 4.2 shares partitions by the same numbers. Which members have one partition more differs: here
those that have it already, and then those with the fewest partitions of other topics.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from barnabas.base.types import TopicId

#: partitions by topic; topics without any are left out
_Partitions: TypeAlias = Mapping[TopicId, frozenset[int]]
_Partition: TypeAlias = tuple[TopicId, int]


class ShareMemberSpec(NamedTuple):
    """One member of a share group."""

    #: subscribed topics
    topics: frozenset[TopicId]
    #: its target until now
    assigned: _Partitions


def assign(members: Mapping[str, ShareMemberSpec], partitions: _Partitions) -> dict[str, _Partitions]:
    """The target of every member.

    A pure function, which ignores the order of its arguments. A member whose target does not change has the
    same object as before.

    Args:
        members: by member id.
        partitions: those that may be assigned.
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
    """The assignment of numbered members while it is computed."""

    def __init__(self, before: Sequence[_Partitions]) -> None:
        self._before = before
        self._owned: list[set[_Partition]] = [set() for _ in before]

    def share(self, partitions: Sequence[_Partition], members: Sequence[int]) -> None:
        """Share `partitions` among `members`, who have none of these topics yet."""
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
        """The partitions of each member by topic."""
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
        """Those of `partitions` that each member has, and the members that have each."""
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
        """The number of partitions for each member; those that come first get one more."""
        least, longer = divmod(total, len(owned))
        ranked = sorted(owned, key=lambda member: (-len(owned[member]), len(self._owned[member]), member))
        return {member: least + (rank < longer) for rank, member in enumerate(ranked)}


def _give_up_surplus(
    owned: Mapping[int, set[_Partition]],
    holders: Mapping[_Partition, set[int]],
    quotas: Mapping[int, int],
    sharing: int,
) -> None:
    """Take partitions from members above their quotas, and from members that share them with too many."""

    def take(member: int, partition: _Partition) -> None:
        owned[member].remove(partition)
        holders[partition].remove(member)

    for member, mine in owned.items():
        surplus = len(mine) - quotas[member]
        if surplus > 0:
            # The partitions that most members share can be spared most easily.
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
    """Give every partition its number of members, and every member its number of partitions.

    The two totals are equal, and no member or partition has too many.
    """
    takers = deque(member for member, mine in owned.items() if len(mine) < quotas[member])

    def give(partition: _Partition, member: int) -> None:
        owned[member].add(partition)
        holders[partition].add(member)

    def find_taker(partition: _Partition) -> int | None:
        """A member below its quota that does not have the partition; each in its turn."""
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
    # The members that are left have all partitions that are left: each gets another one from a member that
    # takes such a partition instead. A full partition that it lacks has a sharer that can.
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
