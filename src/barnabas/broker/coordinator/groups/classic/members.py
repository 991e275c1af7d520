"""The members of a classic group, with counters so that thousands of members join in linear time.

Members hold the metadata of their protocols in memory. `HeldMetadata` limits the total for a broker.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.coordinator.groups.classic.member import ClassicMember, Protocol
from barnabas.kafka.protocol.messages.join_group import JoinGroupResponse

#: the metadata that the members of all classic groups of a broker may hold, in bytes
MAX_METADATA = 256 * 1024 * 1024


class HeldMetadata:
    """Counts the bytes of metadata that the members of a broker's classic groups hold in memory."""

    def __init__(self) -> None:
        self.bytes = 0

    def check(self, before: Sequence[Protocol], after: Sequence[Protocol]) -> None:
        """Raise KafkaError COORDINATOR_NOT_AVAILABLE if a member's new protocols need too much memory.

        `after` are the new protocols, and `before` the ones that they replace. The limit of `MAX_METADATA`
        bytes applies to all members of the broker's classic groups together.
        """
        more = _size(after) - _size(before)
        if more > 0 and self.bytes + more > MAX_METADATA:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "members hold too much metadata")


class Members:
    """The members of a group by id, in the order in which they joined; static ones also by instance id."""

    def __init__(self, held: HeldMetadata) -> None:
        self._members: dict[str, ClassicMember] = {}
        self._static: dict[str, str] = {}
        self._held = held
        #: by protocol: the number of members that support it
        self._supporters: Counter[str] = Counter()
        #: members with a delayed JoinGroup
        self._joined: set[str] = set()

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ClassicMember]:
        """Iterate over the current members. The caller may add and remove members meanwhile."""
        return iter(list(self._members.values()))

    def get(self, member_id: str) -> ClassicMember | None:
        return self._members.get(member_id)

    def holder(self, instance_id: str | None) -> ClassicMember | None:
        """Return the static member with this group.instance.id; None if there is none."""
        return None if instance_id is None else self._members.get(self._static.get(instance_id, ""))

    def check(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """Return the member that sent a request.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, no member has this member id, or no member has the instance id;
                FENCED_INSTANCE_ID, another member has the instance id.
        """
        if instance_id is not None:
            holder = self.holder(instance_id)
            if holder is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if holder.member_id != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self._members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def add(self, member: ClassicMember) -> None:
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        self._count(member.protocols, 1)

    def remove(self, member: ClassicMember) -> None:
        """Remove a member. Its delayed requests must have been answered."""
        del self._members[member.member_id]
        if member.instance_id is not None and self._static[member.instance_id] == member.member_id:
            del self._static[member.instance_id]
        self._count(member.protocols, -1)

    def replace(self, old: ClassicMember, new: ClassicMember) -> None:
        """Replace the static member `old` by `new`, which has the same instance id and another member id.

        `new` takes the place of `old` in the order of the members. The caller must answer the delayed
        requests of `old` first.
        """
        self._count(old.protocols, -1)
        members = [new if member is old else member for member in self._members.values()]
        self._members = {member.member_id: member for member in members}
        self._count(new.protocols, 1)
        assert new.instance_id is not None
        self._static[new.instance_id] = new.member_id

    def drop(self) -> None:
        """Remove all members, because the broker no longer has the group.

        Their delayed requests must have been answered.
        """
        for member in self:
            self.remove(member)

    # --- protocols ---

    def _count(self, protocols: Sequence[Protocol], change: int) -> None:
        for name in _names(protocols):
            self._supporters[name] += change
        self._held.bytes += change * _size(protocols)

    def change_protocols(self, member: ClassicMember, protocols: Sequence[Protocol]) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)

    def has_in_common(self, protocols: Sequence[Protocol]) -> bool:
        """Whether at least one of these protocols has the support of all members."""
        return any(self._supporters[protocol.name] == len(self._members) for protocol in protocols)

    def select_protocol(self) -> str:
        """Return the protocol for the next generation: see `most_preferred`."""
        return most_preferred(self._members.values())

    # --- the join phase ---

    @property
    def joined(self) -> int:
        """The number of members whose JoinGroup waits until the join phase completes."""
        return len(self._joined)

    def park_join(self, member: ClassicMember, reply: asyncio.Future[JoinGroupResponse]) -> None:
        """Delay a member's JoinGroup, whose future is `reply`.

        Answer an earlier delayed JoinGroup of the member with REBALANCE_IN_PROGRESS.
        """
        repeated = ErrorCode.REBALANCE_IN_PROGRESS
        self.answer_join(member, JoinGroupResponse(error_code=repeated, member_id=member.member_id))
        member.join = reply
        self._joined.add(member.member_id)

    def answer_join(self, member: ClassicMember, response: JoinGroupResponse) -> None:
        """Answer a member's JoinGroup, if one is delayed."""
        self._joined.discard(member.member_id)
        member.answer_join(response)


def most_preferred(members: Collection[ClassicMember]) -> str:
    """Return the protocol that most members prefer. Only protocols that all members support count.

    There must be at least one member, and at least one such protocol.
    """
    candidates = set.intersection(*(_names(member.protocols) for member in members))
    votes = Counter(member.vote(candidates) for member in members)
    return votes.most_common(1)[0][0]


def _names(protocols: Sequence[Protocol]) -> set[str]:
    return {protocol.name for protocol in protocols}


def _size(protocols: Sequence[Protocol]) -> int:
    """Return the memory of a member's protocols, in bytes."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)
