"""The assignor `range`: each subscriber of a topic gets a range of consecutive partitions.

The ranges of a topic follow the order of its subscribers. Their lengths differ by one at most, and the longer
ranges come first. So members with equal subscriptions get the same partition numbers of topics with
equally many partitions. Such a member can join these topics by key (co-partitioning). As in Apache Kafka 4,
the assignor ignores current assignments and racks: members keep partitions only because the order is stable.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.coordinator.groups.assignors.spec import Assignment, MemberSpec, TopicSpec, in_order


def assign(members: Mapping[str, MemberSpec], topics: Mapping[str, TopicSpec]) -> dict[str, Assignment]:
    """Return the target assignment of every member, by member id.

    `members` are by member id, and `topics` are the existing topics by name. Topics without subscribers, and
    subscriptions to other topics, are ignored.
    """
    subscribers: dict[str, list[str]] = {}
    for member_id in in_order(members):
        for topic in members[member_id].topics & topics.keys():
            subscribers.setdefault(topic, []).append(member_id)
    targets: dict[str, dict[str, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic, member_ids in subscribers.items():
        length, longer = divmod(topics[topic].partitions, len(member_ids))
        start = 0
        for index, member_id in enumerate(member_ids):
            end = start + length + (index < longer)
            if end > start:
                targets[member_id][topic] = frozenset(range(start, end))
            start = end
    return dict(targets)
