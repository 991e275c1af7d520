"""A classic group's state: its members, its generation, and its delayed requests.

`apply` replays a record (`GroupMetadataValue`: generation, protocol, leader, members with their assignments).
Only `apply` changes the state that a restart loads. All other state belongs to the rebalance in progress:
`barnabas.broker.coordinator.groups.classic.rebalance` changes it, and a restart loses it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from barnabas.base.errors import ErrorCode
from barnabas.broker.coordinator.groups.classic.member import ClassicMember, Protocol
from barnabas.broker.coordinator.groups.classic.members import HeldMetadata, Members
from barnabas.broker.coordinator.groups.classic.states import (
    NEXT_STATE,
    Action,
    Event,
    GroupState,
    action_for,
)
from barnabas.broker.coordinator.groups.codec import CommittedOffset, committed_ms
from barnabas.broker.coordinator.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from barnabas.kafka.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.kafka.protocol.messages.sync_group import SyncGroupResponse
from barnabas.kafka.protocol.records.group_metadata import GroupMetadataValue


class _Everything:
    def __contains__(self, _item: object) -> bool:
        return True


EVERYTHING = _Everything()


class ClassicGroup:
    """A classic group. Its shard owns it.

    Args:
        group_id: id of the group.
        now_ms: present time, in milliseconds since 1970.
        held: counts the bytes of metadata that the members of all classic groups of the broker hold.
    """

    def __init__(self, group_id: str, now_ms: int, held: HeldMetadata) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.EMPTY
        self.state_since_ms = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members = Members(held)
        #: the topics that members subscribed to when the generation began; every topic if that is unknown
        self._topics: Container[str] = EVERYTHING
        #: member ids that JoinGroup returned with MEMBER_ID_REQUIRED: their second JoinGroup is pending
        self.pending: set[str] = set()
        #: members of this generation that have not sent SyncGroup
        self.pending_sync: set[str] = set()
        #: whether a member has joined since the initial delay was last extended
        self.new_member_added = False
        #: consecutive rebalances whose result could not be stored
        self.store_failures = 0
        #: whether the join phase must not complete yet, because the last assignment could not be stored
        self.is_held = False

    def has(self, *states: GroupState) -> bool:
        return self.state in states

    def is_leader(self, member: ClassicMember) -> bool:
        return self.leader == member.member_id

    @property
    def is_empty(self) -> bool:
        return self.has(GroupState.EMPTY)

    @property
    def is_consumer_group(self) -> bool:
        """Whether the protocol type is "consumer", so that the members' metadata has subscribed topics."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def all_joined(self) -> bool:
        return not self.pending and self.members.joined == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members, in milliseconds; 0 without members."""
        return max((member.rebalance_timeout_ms for member in self.members), default=0)

    def supports(self, protocol_type: str, protocols: Sequence[Protocol]) -> bool:
        """Whether a member with this protocol type and these protocols can join.

        `protocol_type` must be the group's type. At least one of `protocols` must be a protocol that all
        present members support. A group without members accepts any type and protocols that are not empty.
        """
        if not self.members:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and self.members.has_in_common(protocols)

    def topics_in_use(self) -> Container[str]:
        """Return the topics that members subscribed to when the generation began.

        If the protocol type is not "consumer", the result is empty. Before the first generation, and if a
        subscription cannot be decoded, the result contains every topic.
        """
        return self._topics if self.is_consumer_group else ()

    def _subscribed(self) -> Container[str]:
        topics: set[str] = set()
        for member in self.members:
            try:
                topics |= subscribed_topics(member.metadata(self.protocol))
            except ValueError:
                return EVERYTHING
        return topics

    def offsets_idle_since(self) -> Callable[[CommittedOffset], int] | None:
        """Return a function that gives the time (ms since 1970) from which the retention of an offset counts.

        Return None if no offset may expire now.
        """
        if self.protocol_type is None:
            return committed_ms
        if self.has(GroupState.EMPTY):
            if self.state_since_ms < 0:  # stored before KIP-211
                return committed_ms
            return lambda _: self.state_since_ms
        if self.is_consumer_group and self.has(GroupState.STABLE):
            return committed_ms
        return None

    # --- the rebalance in progress ---

    def react(self, event: Event) -> Action:
        """Return the action for an event in the group's current state; see `states.TABLE`."""
        return action_for(self.state, event)

    def enter(self, action: Action, now_ms: int) -> None:
        """Set the group's state to the one that follows `action`, a key of `NEXT_STATE`."""
        self.previous_state = self.state
        self.state = NEXT_STATE[action]
        self.state_since_ms = now_ms

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        self.members.add(member)
        if self.leader is None:
            self.leader = member.member_id
        self.pending.discard(member.member_id)

    def remove(self, member: ClassicMember) -> None:
        """Remove a member, and answer its delayed requests with UNKNOWN_MEMBER_ID.

        If the member was the leader, its successor is the member that joined first, or None in an empty
        group.
        """
        self.members.answer_join(member, JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        member.answer_sync(SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        self.members.remove(member)
        self.pending_sync.discard(member.member_id)
        if self.is_leader(member):
            self.leader = next((other.member_id for other in self.members), None)

    def replace_static_member(self, old: ClassicMember, new: ClassicMember) -> None:
        """Replace the static member `old` by `new`, which has the same instance id and another member id.

        Answer the delayed requests of `old` with FENCED_INSTANCE_ID.
        """
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self.members.answer_join(old, JoinGroupResponse(error_code=fenced, member_id=old.member_id))
        old.answer_sync(SyncGroupResponse(error_code=fenced))
        self.members.replace(old, new)
        if old.member_id in self.pending_sync:
            self.pending_sync.remove(old.member_id)
            self.pending_sync.add(new.member_id)
        if self.is_leader(old):
            self.leader = new.member_id

    def elect_joined_leader(self) -> bool:
        """If the leader has not joined, choose a new leader from the members that have joined.

        Return True if the leader, old or new, has joined. Return False, and change nothing, if the group has
        no leader or if no member has joined.
        """
        leader = self.members.get(self.leader or "")
        if leader is None:
            return False
        if leader.join is None:
            leader = next((member for member in self.members if member.join is not None), None)
            if leader is None:
                return False
            self.leader = leader.member_id
        return True

    def next_generation(self, now_ms: int) -> None:
        """Complete the join phase: choose the protocol, and raise the generation.

        Each member must then send SyncGroup.
        """
        self.generation += 1
        self.protocol = self.members.select_protocol()
        self._topics = self._subscribed()
        self.pending_sync = {member.member_id for member in self.members}
        self.enter(Action.COMPLETE_JOIN, now_ms)

    def join_response(self, member: ClassicMember) -> JoinGroupResponse:
        """Return the JoinGroup response for a member in this generation.

        Only the leader's response lists all members.
        """
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader or "",
            member_id=member.member_id,
            members=[
                JoinGroupResponseMember(
                    member_id=each.member_id,
                    group_instance_id=each.instance_id,
                    metadata=each.metadata(self.protocol),
                )
                for each in (self.members if self.is_leader(member) else ())
            ],
        )

    # --- records ---

    def to_record(
        self, assignments: dict[str, bytes], members: Sequence[ClassicMember]
    ) -> GroupMetadataValue:
        """Return the record of the current generation with `members`.

        `assignments` are by member id. A member without one gets empty bytes.
        """
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
        """Return the record of the next generation for a group that has become empty."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation + 1,
            protocol=None,
            leader=None,
            current_state_timestamp=now_ms,
        )

    def apply(self, value: GroupMetadataValue) -> None:
        """Replay a stored generation: set its protocol, leader, members and assignments.

        Members that the record does not have are removed. A member with the instance id of an earlier member
        replaces the earlier one.
        """
        self.protocol_type = value.protocol_type or None
        begins = value.generation != self.generation
        self.generation = value.generation
        self.protocol = value.protocol
        stored = {record.member_id for record in value.members}
        for record in value.members:
            member = self.members.get(record.member_id)
            if member is not None:
                member.assignment = record.assignment
                continue
            member = ClassicMember.from_record(record, value.protocol)
            predecessor = self.members.holder(record.group_instance_id)
            if predecessor is not None:
                self.replace_static_member(predecessor, member)
            else:
                self.members.add(member)
        for member in self.members:
            if member.member_id not in stored:
                self.remove(member)
        if begins or not stored:
            self._topics = self._subscribed()
        self.leader = value.leader
        self.store_failures = 0
        action = self.react(Event.STORED if stored else Event.EMPTIED)
        self.enter(action, value.current_state_timestamp)
