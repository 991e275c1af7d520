"""A classic group's state: who is in it, in which generation, and which answers it owes.

What a restart needs (`GroupMetadataValue`: generation, protocol, leader, members with their assignments)
changes by `apply`, when a record is replayed. The rest is the round of rebalancing under way, which the
operations of `barnabas.coordinator.groups.rebalance` change as they go and a restart begins anew.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from enum import Enum

from barnabas.coordinator.groups.member import Member, Protocol
from barnabas.coordinator.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.protocol.messages.sync_group import SyncGroupResponse
from barnabas.protocol.records.group_metadata import GroupMetadataValue


class GroupState(Enum):
    """The states of a classic group, by the names that ListGroups and DescribeGroups show."""

    EMPTY = "Empty"
    #: members are asked to join again; the round ends when all have, or the rebalance timeout has passed
    PREPARING_REBALANCE = "PreparingRebalance"
    #: all have been told the generation; the leader's assignment is awaited
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class ClassicGroup:
    """One group. Owned by its shard."""

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.EMPTY
        self.state_since_ms = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        #: in the order they joined
        self.members: dict[str, Member] = {}
        self._static: dict[str, str] = {}
        #: member ids handed out with MEMBER_ID_REQUIRED, whose second JoinGroup is awaited
        self.pending: set[str] = set()
        #: members of this generation that have not sent SyncGroup
        self.pending_sync: set[str] = set()
        #: someone has joined since the initial delay was last prolonged
        self.new_member_added = False

    # --- questions ---

    def has(self, *states: GroupState) -> bool:
        return self.state in states

    def static_member_id(self, instance_id: str | None) -> str | None:
        """The member id that holds a group.instance.id."""
        return None if instance_id is None else self._static.get(instance_id)

    def is_leader(self, member_id: str) -> bool:
        return self.leader == member_id

    @property
    def is_consumer_group(self) -> bool:
        """Whether the members say which topics they subscribe to."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def awaiting_join(self) -> int:
        """How many members have joined the round that is being prepared."""
        return sum(member.join is not None for member in self.members.values())

    @property
    def all_joined(self) -> bool:
        return not self.pending and all(member.join is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest any member asked for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member a request comes from.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when another has taken its instance id.
        """
        if instance_id is not None:
            holder = self._static.get(instance_id)
            if holder is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if holder != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def supports(self, protocol_type: str, protocols: Sequence[Protocol]) -> bool:
        """Whether a member with these protocols can join those who are there."""
        if not self.members:
            return bool(protocol_type) and bool(protocols)
        common = _common_protocols(self.members.values())
        return protocol_type == self.protocol_type and any(protocol.name in common for protocol in protocols)

    def select_protocol(self, members: Collection[Member] | None = None) -> str:
        """The protocol these members would use: of those all support, the one most prefer."""
        if members is None:
            members = self.members.values()
        candidates = _common_protocols(members)
        votes = Counter(member.vote(candidates) for member in members)
        return votes.most_common(1)[0][0]

    def topics_in_use(self) -> Container[str]:
        """The topics that consumers of this group subscribe to; all topics when that cannot be told."""
        topics: set[str] = set()
        if not self.is_consumer_group:
            return topics
        for member in self.members.values():
            try:
                topics |= subscribed_topics(member.metadata(self.protocol))
            except ValueError:
                return _Everything()
        return topics

    # --- the round under way ---

    def move_to(self, state: GroupState, now_ms: int) -> None:
        self.previous_state = self.state
        self.state = state
        self.state_since_ms = now_ms

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        self._put(member)
        if self.leader is None:
            self.leader = member.member_id
        self.pending.discard(member.member_id)

    def await_join(self, member: Member, join: asyncio.Future[JoinGroupResponse]) -> None:
        """Park a member's JoinGroup; one it had parked before is told to go round again."""
        member.answer_join(
            JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
        )
        member.join = join

    def remove(self, member: Member) -> None:
        """Take a member out, telling it so if it waits."""
        member.answer_join(JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        member.answer_sync(SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        self.members.pop(member.member_id, None)
        self.pending_sync.discard(member.member_id)
        if member.instance_id is not None and self._static.get(member.instance_id) == member.member_id:
            del self._static[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def take_over(self, member: Member, old_id: str) -> None:
        """`member` takes the place of the one that held its instance id, which is fenced if it waits."""
        old = self.members[old_id]
        fenced = ErrorCode.FENCED_INSTANCE_ID
        old.answer_join(JoinGroupResponse(error_code=fenced, member_id=old_id))
        old.answer_sync(SyncGroupResponse(error_code=fenced))
        if old_id in self.pending_sync:
            self.pending_sync.remove(old_id)
            self.pending_sync.add(member.member_id)
        self.members = {
            member.member_id if name == old_id else name: member if name == old_id else other
            for name, other in self.members.items()
        }
        assert member.instance_id is not None
        self._static[member.instance_id] = member.member_id
        if self.leader == old_id:
            self.leader = member.member_id

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader has joined the round; False when nobody has."""
        if self.leader is None or self.leader not in self.members:
            return False
        if self.members[self.leader].join is None:
            joined = next((m.member_id for m in self.members.values() if m.join is not None), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    def next_generation(self, now_ms: int) -> None:
        """All who will have joined: settle protocol and generation."""
        self.generation += 1
        self.protocol = self.select_protocol()
        self.pending_sync = set(self.members)
        self.move_to(GroupState.COMPLETING_REBALANCE, now_ms)

    def join_response(self, member: Member) -> JoinGroupResponse:
        """What a member of this generation learns; the leader learns who the others are, too."""
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader or "",
            member_id=member.member_id,
            members=list(self._roster()) if self.is_leader(member.member_id) else [],
        )

    def _roster(self) -> Iterator[JoinGroupResponseMember]:
        for member in self.members.values():
            yield JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(self.protocol),
            )

    # --- what is stored ---

    def to_record(self, assignments: dict[str, bytes], members: Sequence[Member]) -> GroupMetadataValue:
        """The generation that `apply` will install, with these members and their assignments."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=self.state_since_ms,
            members=[
                member.to_record(self.protocol, assignments.get(member.member_id, b"")) for member in members
            ],
        )

    def empty_record(self, now_ms: int) -> GroupMetadataValue:
        """The next generation, which nobody has joined."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation + 1,
            protocol=None,
            leader=None,
            current_state_timestamp=now_ms,
        )

    def apply(self, value: GroupMetadataValue) -> None:
        """Install a stored generation: assignments, a static member's successor, or nobody at all."""
        self.protocol_type = value.protocol_type or None
        self.generation = value.generation
        self.protocol = value.protocol
        stored = {record.member_id for record in value.members}
        for record in value.members:
            member = self.members.get(record.member_id)
            if member is not None:
                member.assignment = record.assignment
                continue
            member = Member.from_record(record, value.protocol)
            predecessor = self.static_member_id(record.group_instance_id)
            if predecessor is not None:
                self.take_over(member, predecessor)
            else:
                self._put(member)
        for member in [member for name, member in self.members.items() if name not in stored]:
            self.remove(member)
        self.leader = value.leader
        self.move_to(GroupState.STABLE if stored else GroupState.EMPTY, value.current_state_timestamp)

    def _put(self, member: Member) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id


class _Everything:
    def __contains__(self, _item: object) -> bool:
        return True


def _common_protocols(members: Iterable[Member]) -> set[str]:
    return set.intersection(*({protocol.name for protocol in member.protocols} for member in members))
