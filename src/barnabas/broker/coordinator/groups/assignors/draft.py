"""A partly computed assignment: the owner of each partition so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from barnabas.broker.coordinator.groups.assignors.spec import Assignment, MemberSpec, TopicSpec, in_order

#: the owner of an unassigned partition
NOBODY = -1


class AssignmentDraft:
    """The owner of each partition while an assignor computes an assignment.

    A draft begins with the partitions that members have and can keep: existing partitions of topics that the
    member subscribes to. The number of a member is its index in the list from `in_order`. Topics are in the
    order of their names.
    """

    def __init__(self, members: Mapping[str, MemberSpec], topics: Mapping[str, TopicSpec]) -> None:
        self._members = [(member_id, members[member_id]) for member_id in in_order(members)]
        self._topics = topics
        #: by existing topic with subscribers: the members that subscribe to it
        self.subscribers: dict[str, list[int]] = {}
        #: by topic: the member that owns each partition, or `NOBODY`
        self.owners: dict[str, list[int]] = {}
        #: by member: the number of its partitions
        self.loads = [0] * len(self._members)
        wanted = [spec.topics & topics.keys() for _, spec in self._members]
        for topic in sorted(frozenset().union(*wanted)):
            self.subscribers[topic] = []
            self.owners[topic] = [NOBODY] * topics[topic].partitions
        for member, names in enumerate(wanted):
            for topic in names:
                self.subscribers[topic].append(member)
        for member, (_, spec) in enumerate(self._members):
            for topic in wanted[member] & spec.assigned.keys():
                owners = self.owners[topic]
                for partition in spec.assigned[topic]:
                    if partition < len(owners) and owners[partition] == NOBODY:
                        self.give(topic, partition, member)

    def racks(self, topic: str, partition: int) -> frozenset[str]:
        """Return the racks of the partition's replicas, as far as they are known."""
        racks = self._topics[topic].racks
        return racks[partition] if partition < len(racks) else frozenset()

    def rack(self, member: int) -> str | None:
        return self._members[member][1].rack_id

    def give(self, topic: str, partition: int, member: int) -> None:
        """Move a partition from its present owner to another member.

        `member` is the number of the member, or `NOBODY` to leave the partition without an owner.
        """
        owner = self.owners[topic][partition]
        if owner != NOBODY:
            self.loads[owner] -= 1
        if member != NOBODY:
            self.loads[member] += 1
        self.owners[topic][partition] = member

    def partitions(self) -> Iterator[tuple[str, int, int]]:
        """Yield (topic, partition, owner) for each partition of a topic with subscribers.

        The owner is the number of a member, or `NOBODY` (-1). The number of a member is its index in the list
        from `in_order`. The caller may change owners meanwhile.
        """
        for topic, owners in self.owners.items():
            for partition, owner in enumerate(owners):
                yield topic, partition, owner

    def result(self) -> dict[str, Assignment]:
        """Return the target assignment of each member, by member id.

        A member whose target does not change gets its last one, `MemberSpec.assigned`, as the same object.
        """
        owned: list[dict[str, list[int]]] = [{} for _ in self._members]
        for topic, partition, owner in self.partitions():
            if owner != NOBODY:
                owned[owner].setdefault(topic, []).append(partition)
        targets: dict[str, Assignment] = {}
        for (member_id, spec), found in zip(self._members, owned, strict=True):
            target = {topic: frozenset(partitions) for topic, partitions in found.items()}
            targets[member_id] = spec.assigned if spec.assigned == target else target
        return targets
