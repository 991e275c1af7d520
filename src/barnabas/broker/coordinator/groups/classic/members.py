"""The members of a group, with counters so that thousands of members join in linear time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.coordinator.groups.classic.member import ClassicMember, Protocol
from barnabas.kafka.protocol.messages.join_group import JoinGroupResponse


class Members:
    """Members by id, in the order they joined; static ones by their group.instance.id, too."""

    def __init__(self) -> None:
        self._members: dict[str, ClassicMember] = {}
        self._static: dict[str, str] = {}
        #: how many members support a protocol
        self._supporters: Counter[str] = Counter()
        #: members with a parked JoinGroup
        self._joined: set[str] = set()

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ClassicMember]:
        """The members; they may change meanwhile."""
        return iter(list(self._members.values()))

    def get(self, member_id: str) -> ClassicMember | None:
        return self._members.get(member_id)

    def holder(self, instance_id: str | None) -> ClassicMember | None:
        """The member that holds a group.instance.id."""
        return None if instance_id is None else self._members.get(self._static.get(instance_id, ""))

    def check(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member a request comes from.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when another has taken its instance id.
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

    # --- who is in it ---

    def add(self, member: ClassicMember) -> None:
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        self._supporters.update(_names(member.protocols))

    def remove(self, member: ClassicMember) -> None:
        """Remove a member whose requests have been answered."""
        del self._members[member.member_id]
        if member.instance_id is not None and self._static[member.instance_id] == member.member_id:
            del self._static[member.instance_id]
        self._supporters.subtract(_names(member.protocols))

    def replace(self, old: ClassicMember, new: ClassicMember) -> None:
        """Put a static member's successor in its place."""
        self._supporters.subtract(_names(old.protocols))
        members = [new if member is old else member for member in self._members.values()]
        self._members = {member.member_id: member for member in members}
        self._supporters.update(_names(new.protocols))
        assert new.instance_id is not None
        self._static[new.instance_id] = new.member_id

    # --- what they support ---

    def change_protocols(self, member: ClassicMember, protocols: Sequence[Protocol]) -> None:
        self._supporters.subtract(_names(member.protocols))
        member.protocols = protocols
        self._supporters.update(_names(protocols))

    def has_in_common(self, protocols: Sequence[Protocol]) -> bool:
        """Whether all members support one of these protocols."""
        return any(self._supporters[protocol.name] == len(self._members) for protocol in protocols)

    def select_protocol(self) -> str:
        """The protocol of the next generation: of those all support, the one most prefer."""
        return most_preferred(self._members.values())

    # --- who has joined the round under way ---

    @property
    def joined(self) -> int:
        """How many members wait for the round to end."""
        return len(self._joined)

    def park_join(self, member: ClassicMember, reply: asyncio.Future[JoinGroupResponse]) -> None:
        """Park a member's JoinGroup. An earlier parked one is answered with REBALANCE_IN_PROGRESS."""
        repeated = ErrorCode.REBALANCE_IN_PROGRESS
        self.answer_join(member, JoinGroupResponse(error_code=repeated, member_id=member.member_id))
        member.join = reply
        self._joined.add(member.member_id)

    def answer_join(self, member: ClassicMember, response: JoinGroupResponse) -> None:
        """Answer a member's JoinGroup, if one is parked."""
        self._joined.discard(member.member_id)
        member.answer_join(response)


def most_preferred(members: Collection[ClassicMember]) -> str:
    """Of the protocols that all these members support, the one most prefer."""
    candidates = set.intersection(*(_names(member.protocols) for member in members))
    votes = Counter(member.vote(candidates) for member in members)
    return votes.most_common(1)[0][0]


def _names(protocols: Sequence[Protocol]) -> set[str]:
    return {protocol.name for protocol in protocols}
