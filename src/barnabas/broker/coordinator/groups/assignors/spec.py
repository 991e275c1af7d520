"""The input and the output of assignors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

#: the partitions of a member by topic name, without topics of which it has none
Assignment = Mapping[str, frozenset[int]]


class MemberSpec(NamedTuple):
    """One member of the group."""

    #: subscribed topics, regular expressions resolved
    topics: frozenset[str]
    #: group.instance.id of a static member
    instance_id: str | None
    #: client.rack
    rack_id: str | None
    #: its target until now
    assigned: Assignment


class TopicSpec(NamedTuple):
    """One topic whose partitions the group can get."""

    partitions: int
    #: for each partition the racks of its replicas; empty if they are unknown
    racks: tuple[frozenset[str], ...] = ()


#: Assigns each partition of an existing topic with subscribers to one of them. Gets members by id, and topics
#: by name: subscribed topics may be missing, and others may be there. Returns the target of every member. A
#: pure function, which ignores the order of its arguments.
Assignor = Callable[[Mapping[str, MemberSpec], Mapping[str, TopicSpec]], dict[str, Assignment]]


def in_order(members: Mapping[str, MemberSpec]) -> list[str]:
    """Return the members' ids in the order for assignors: static members by instance id, then others by id.

    So a static member that restarts with a new id keeps its position.
    """
    return sorted(
        members, key=lambda id: (members[id].instance_id is None, members[id].instance_id or "", id)
    )
