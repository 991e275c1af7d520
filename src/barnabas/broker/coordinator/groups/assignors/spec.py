"""The input and the output of assignors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

#: the partitions of a member by topic name; topics without partitions are left out
Assignment = Mapping[str, frozenset[int]]


class MemberSpec(NamedTuple):
    """The data of a member that assignors use: subscription, identity, rack and last target assignment."""

    #: subscribed topics, including those that match a regular expression
    topics: frozenset[str]
    #: group.instance.id of a static member
    instance_id: str | None
    #: client.rack
    rack_id: str | None
    #: the member's last target
    assigned: Assignment


class TopicSpec(NamedTuple):
    """The data of a topic that assignors use: its number of partitions, and the racks of their replicas."""

    partitions: int
    #: for each partition the racks of its replicas; empty if they are unknown
    racks: tuple[frozenset[str], ...] = ()


#: A function that assigns each partition of a topic to one of the topic's subscribers. Its arguments are the
#: members by id, and the existing topics by name. It ignores topics without subscribers, and subscriptions to
#: other topics. It returns the target of every member. It is pure, and the order of its arguments does not
#: matter.
Assignor = Callable[[Mapping[str, MemberSpec], Mapping[str, TopicSpec]], dict[str, Assignment]]


def in_order(members: Mapping[str, MemberSpec]) -> list[str]:
    """Return the member ids in a stable order: static members by instance id, then the others by member id.

    So a static member that restarts with a new id keeps its position.
    """
    return sorted(
        members, key=lambda id: (members[id].instance_id is None, members[id].instance_id or "", id)
    )
