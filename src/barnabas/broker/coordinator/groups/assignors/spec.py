"""The input and the output of assignors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

#: the partitions of a member, by the name of their topic; topics of which it has none are left out
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
    """One topic that the group may be assigned partitions of."""

    partitions: int
    #: for each partition the racks of its replicas; empty when they are not known
    racks: tuple[frozenset[str], ...] = ()


#: Gives each partition of a topic that anybody subscribes to and that exists to one of the topic's
#: subscribers. Takes members by id and topics by name, which may lack some that are subscribed to and hold
#: others; answers with the target of every member. A pure function: the same arguments, in whatever order,
#: the same answer.
Assignor = Callable[[Mapping[str, MemberSpec], Mapping[str, TopicSpec]], dict[str, Assignment]]


def in_order(members: Mapping[str, MemberSpec]) -> list[str]:
    """The ids of the members in the order in which assignors serve them: static ones by instance id, then the
    others by id. So a static member that comes back under a new id takes the same place."""
    return sorted(
        members, key=lambda id: (members[id].instance_id is None, members[id].instance_id or "", id)
    )
