"""The assignor `uniform`: gives each member equally many partitions, with as few moves as possible.

If all members subscribe to the same topics, their numbers of partitions differ by at most one, and no
partition moves without need. Members with one partition more than others keep it if the numbers cannot be
equal. If subscriptions differ, each partition goes to the subscriber with the fewest partitions, as in Apache
Kafka 4.2. Then, topic by topic, partitions move from subscribers with the most to those with the fewest.

Apache Kafka 4 ignores racks. Here, if all members subscribe to the same topics, a member in the rack of a
replica comes first. Racks decide only between members that balance and stickiness do not distinguish.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, count, islice

from barnabas.broker.coordinator.groups.assignors.draft import NOBODY, AssignmentDraft
from barnabas.broker.coordinator.groups.assignors.spec import Assignment, MemberSpec, TopicSpec

#: with overlapping subscriptions, each round about halves the imbalance
MAX_ROUNDS = 16


def assign(members: Mapping[str, MemberSpec], topics: Mapping[str, TopicSpec]) -> dict[str, Assignment]:
    """Return the target assignment of every member, by member id.

    `members` are by member id, and `topics` are the existing topics by name. Topics without subscribers, and
    subscriptions to other topics, are ignored.
    """
    draft = AssignmentDraft(members, topics)
    if all(len(subscribers) == len(members) for subscribers in draft.subscribers.values()):
        _level(draft)
    else:
        order = sorted(draft.subscribers, key=lambda topic: _scarcity(draft, topic))
        for topic in order:
            _hand_out(draft, topic)
        _balance(draft, order)
    return draft.result()


# --- equal subscriptions ---


def _level(draft: AssignmentDraft) -> None:
    """Give each partition an owner, so that the members' numbers of partitions differ by at most one.

    A member's share is the mean number of partitions, rounded down or up. Partitions move only from members
    with more than their share. They, and the partitions without an owner, go to members with less than their
    share. Without members, do nothing.
    """
    if not draft.loads:
        return
    share, extras = divmod(sum(map(len, draft.owners.values())), len(draft.loads))
    having_more = [member for member, load in enumerate(draft.loads) if load > share]
    others = [member for member, load in enumerate(draft.loads) if load <= share]
    room = [share] * len(draft.loads)
    for member in islice(chain(having_more, reversed(others)), extras):
        room[member] += 1
    unowned: list[tuple[str, int]] = []
    beyond: list[tuple[int, str, int]] = []
    for topic, partition, owner in sorted(draft.partitions(), key=lambda owned: _is_far(draft, *owned)):
        if owner == NOBODY:
            unowned.append((topic, partition))
        elif room[owner] == 0:
            beyond.append((owner, topic, partition))
        else:
            room[owner] -= 1
    _fill(draft, unowned + [(topic, partition) for _, topic, partition in sorted(beyond)], room)


def _is_far(draft: AssignmentDraft, topic: str, partition: int, owner: int) -> bool:
    """Whether the racks of the partition's replicas are known, and the owner's rack is none of them.

    Such partitions move first. False if `owner` is `NOBODY`. An owner without a rack is far from all racks.
    """
    racks = draft.racks(topic, partition)
    return bool(racks) and owner != NOBODY and draft.rack(owner) not in racks


def _fill(draft: AssignmentDraft, free: list[tuple[str, int]], room: list[int]) -> None:
    """Give the partitions in `free` to members, if possible to a member in the rack of one of the replicas.

    `free` has pairs of a topic and a partition number. `room` has for each member the number of partitions
    that it can still get; the sum must be enough for `free`. This function changes `room`.
    """
    waiting: dict[str | None, list[int]] = {}
    for member in reversed(range(len(room))):
        if room[member]:
            waiting.setdefault(draft.rack(member), []).append(member)
    rest = []
    for topic, partition in free:
        racks = [rack for rack in draft.racks(topic, partition) if waiting.get(rack)]
        if not racks:
            rest.append((topic, partition))
            continue
        queue = waiting[min(racks)]
        draft.give(topic, partition, queue[-1])
        room[queue[-1]] -= 1
        if not room[queue[-1]]:
            queue.pop()
    remaining = iter(rest)
    for member, number in enumerate(room):
        for topic, partition in islice(remaining, number):
            draft.give(topic, partition, member)


# --- different subscriptions ---


def _scarcity(draft: AssignmentDraft, topic: str) -> tuple[float, int, str]:
    """Return the sort key of a topic: topics whose subscribers get many partitions come first."""
    subscribers = len(draft.subscribers[topic])
    return -len(draft.owners[topic]) / subscribers, subscribers, topic


def _by_load(draft: AssignmentDraft, topic: str) -> list[int]:
    """Return the topic's subscribers, the one with the fewest partitions first."""
    return sorted(draft.subscribers[topic], key=draft.loads.__getitem__)


def _hand_out(draft: AssignmentDraft, topic: str) -> None:
    """Give the unassigned partitions of a topic to the subscribers with the fewest partitions."""
    free = [partition for partition, owner in enumerate(draft.owners[topic]) if owner == NOBODY]
    if free:
        takers = _takers(draft, _by_load(draft, topic))
        for partition, (_, taker) in zip(free, takers, strict=False):
            draft.give(topic, partition, taker)


def _balance(draft: AssignmentDraft, order: list[str]) -> None:
    """Balance topic by topic, until one pass over all topics moves no partition, or after `MAX_ROUNDS`.

    `order` are the topics, in the order in which they are balanced.
    """
    still = 0
    for _ in range(MAX_ROUNDS):
        for topic in order:
            still = 0 if _balance_topic(draft, topic) else still + 1
            if still == len(order):
                return


def _balance_topic(draft: AssignmentDraft, topic: str) -> bool:
    """Move partitions of a topic from subscribers with the most to those with the fewest.

    Stop when a move would not reduce the difference. Return whether any partition moved.
    """
    loads = [draft.loads[member] for member in draft.subscribers[topic]]
    if max(loads) - min(loads) <= 1:
        return False
    owned: dict[int, list[int]] = {}
    for partition, owner in enumerate(draft.owners[topic]):
        owned.setdefault(owner, []).append(partition)
    members = _by_load(draft, topic)
    moved = False
    for (high, giver), (low, taker) in zip(
        _givers(draft, members, owned), _takers(draft, members), strict=False
    ):
        if high - low <= 1:
            break
        draft.give(topic, owned[giver].pop(), taker)
        moved = True
    return moved


def _takers(draft: AssignmentDraft, members: list[int]) -> Iterator[tuple[int, int]]:
    """Yield (number of partitions, member) for the member that gets the next partition, without end.

    In `members`, the ones with the fewest partitions must come first. The caller must give the yielded member
    a partition before the next step. For example, members A and B have 1 partition each, and C has 2. Then
    the order is A, B, and from then on A, B, C in each round.
    """
    end = 0
    for level in count(draft.loads[members[0]]):
        while end < len(members) and draft.loads[members[end]] == level:
            end += 1
        for index in range(end):
            yield level, members[index]


def _givers(
    draft: AssignmentDraft, members: list[int], owned: dict[int, list[int]]
) -> Iterator[tuple[int, int]]:
    """Yield (number of partitions, member) for the member that gives up the next partition of one topic.

    Members with the most partitions come first. The iterator ends when no member has partitions of the topic.
    Before the next step, the caller must take a partition from the yielded member, both in `owned` and in
    `draft`.

    Args:
        draft: the assignment, with the number of partitions of each member.
        members: the topic's subscribers; the ones with the fewest partitions must come first. Changed.
        owned: the topic's partitions of each member.
    """
    start = end = len(members)
    level = draft.loads[members[-1]]
    while end:
        # All members of a level may be without partitions.
        level = draft.loads[members[start - 1]] if start == end else level - 1
        while start and draft.loads[members[start - 1]] == level:
            start -= 1
        for index in reversed(range(start, end)):
            member = members[index]
            if owned.get(member):
                yield level, member
            else:
                end -= 1
                members[index], members[end] = members[end], member
