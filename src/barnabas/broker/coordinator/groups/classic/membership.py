"""The membership of a classic group: JoinGroup, Heartbeat, LeaveGroup, and session timeouts.

From JoinGroup v4 on, a dynamic member first gets only an id (MEMBER_ID_REQUIRED, KIP-394). The client becomes
a member when it joins again with the id. A static member has a group.instance.id (KIP-345). A static member
that restarts replaces and fences its predecessor. In a stable group, the other members then rebalance only if
the group's protocol changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.text import logger_of
from barnabas.broker.coordinator.contract import Result
from barnabas.broker.coordinator.groups.caller import Caller
from barnabas.broker.coordinator.groups.classic.group import ClassicGroup
from barnabas.broker.coordinator.groups.classic.member import ClassicMember, Protocol
from barnabas.broker.coordinator.groups.classic.members import HeldMetadata, most_preferred
from barnabas.broker.coordinator.groups.classic.rebalance import Rebalance
from barnabas.broker.coordinator.groups.classic.session_timeouts import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    SessionTimeouts,
)
from barnabas.broker.coordinator.groups.classic.states import Action, Event, GroupState
from barnabas.broker.coordinator.groups.codec import GroupRecord
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.kafka.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.kafka.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse

logger = logger_of(__name__, is_limited=True)

#: from this version a dynamic member joins with the id it was given (KIP-394)
_MEMBER_ID_REQUIRED_FROM = 4
#: from this version the response tells a restarted static leader not to assign (KIP-814)
_SKIP_ASSIGNMENT_FROM = 9


class ClassicMembership:
    """Adds and removes members of one shard's classic groups. `GroupShard` documents the operations.

    Args:
        view: settings of the broker.
        sessions: the session timeouts of members.
        rebalance: runs the rebalances of the groups.
        unique: returns a different text at each call. The text becomes the end of a new member id.
        held: counts the bytes of metadata that the members of all groups hold in memory.
        max_bytes: returns the size of the largest batch that can be appended, in bytes.
    """

    def __init__(
        self,
        view: BrokerView,
        sessions: SessionTimeouts,
        rebalance: Rebalance,
        unique: Callable[[], str],
        held: HeldMetadata,
        max_bytes: Callable[[], int],
    ) -> None:
        self._view = view
        self._sessions = sessions
        self._rebalance = rebalance
        self._unique = unique
        self._held = held
        self._max_bytes = max_bytes

    # --- join ---

    def join(
        self, group: ClassicGroup, request: JoinGroupRequest, caller: Caller
    ) -> Result[JoinGroupResponse]:
        member = group.members.get(request.member_id)
        if not self._has_room(group, member):
            if member is not None:
                self._rebalance.forget(group, member)
            group.pending.discard(request.member_id)
            self._sessions.unwatch(group, request.member_id)
            return Result(JoinGroupResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED))
        protocols = [Protocol(protocol.name, protocol.metadata) for protocol in request.protocols]
        if not group.supports(request.protocol_type, protocols):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if sum(len(protocol.metadata) for protocol in protocols) > self._max_bytes():
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                "the member's metadata is larger than max.message.bytes of __consumer_offsets allows",
            )
        self._held.check(() if member is None else member.protocols, protocols)
        if request.member_id:
            return self._join_known(group, request, caller, protocols)
        member_id = f"{request.group_instance_id or caller.client_id}-{self._unique()}"
        member = _member(request, caller, member_id, protocols)
        holder = group.members.holder(request.group_instance_id)
        if holder is not None:
            return self._replace_static_member(group, member, holder, caller)
        if request.group_instance_id is None and caller.api_version >= _MEMBER_ID_REQUIRED_FROM:
            group.pending.add(member_id)
            self._sessions.watch(group, member_id, request.session_timeout_ms)
            return Result(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
        return self._add(group, member, request)

    def _join_known(
        self, group: ClassicGroup, request: JoinGroupRequest, caller: Caller, protocols: list[Protocol]
    ) -> Result[JoinGroupResponse]:
        if request.member_id in group.pending:
            if request.group_instance_id is not None:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "the member id was given to a member without group.instance.id"
                )
            return self._add(group, _member(request, caller, request.member_id, protocols), request)
        member = group.members.check(request.member_id, request.group_instance_id)
        unchanged = member.protocols == protocols
        event = Event.MEMBERS_CHANGED
        if unchanged:
            event = Event.LEADER_REPEATS if group.is_leader(member) else Event.FOLLOWER_REPEATS
        action = group.react(event)
        if action is Action.REPEAT:
            return Result(group.join_response(member))
        group.members.change_protocols(member, protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = _rebalance_timeout(request)
        reply = _park(group, member)
        reason = f"{member.member_id} joins again{_because(request.reason)}"
        return Result(reply, self._rebalance.act(group, action, reason))

    def _add(
        self, group: ClassicGroup, member: ClassicMember, request: JoinGroupRequest
    ) -> Result[JoinGroupResponse]:
        member.is_new = True
        if group.has(GroupState.PREPARING_REBALANCE) and group.previous_state is GroupState.EMPTY:
            group.new_member_added = True
        group.add(member, request.protocol_type)
        reply = _park(group, member)
        self._sessions.watch(group, member.member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
        return Result(
            reply, self._rebalance.advance(group, f"{member.member_id} joins{_because(request.reason)}")
        )

    def _replace_static_member(
        self, group: ClassicGroup, member: ClassicMember, old: ClassicMember, caller: Caller
    ) -> Result[JoinGroupResponse]:
        """Replace the static member `old` by `member`: its client has restarted, and has a new member id.

        If the group is stable and keeps its protocol, only store the new member id. In every other case,
        begin a rebalance or continue the one in progress.
        """
        member.assignment = old.assignment
        logger.info("group %s: member %s replaces %s", group.group_id, member.member_id, old.member_id)
        action = group.react(Event.SUCCESSOR)
        if action is Action.REPLACE:
            successors = [member if other is old else other for other in group.members]
            if most_preferred(successors) == group.protocol:
                return self._replace_without_rebalance(group, member, old, successors, caller)
            action = group.react(Event.MEMBERS_CHANGED)
        self._sessions.unwatch(group, old.member_id)
        group.replace_static_member(old, member)
        self._sessions.keep_alive(group, member)
        reply = _park(group, member)
        return Result(reply, self._rebalance.act(group, action, f"{member.instance_id} is back"))

    def _replace_without_rebalance(
        self,
        group: ClassicGroup,
        member: ClassicMember,
        old: ClassicMember,
        successors: list[ClassicMember],
        caller: Caller,
    ) -> Result[JoinGroupResponse]:
        """Store the new member id of a restarted static member, without a rebalance.

        `successors` are all members of the group, with `member` in place of `old`.
        """
        was_leader = group.is_leader(old)
        assignments = {other.member_id: other.assignment for other in successors}
        value = group.to_record(assignments, successors)
        if was_leader:
            value.leader = member.member_id

        def then(error: KafkaError | None) -> JoinGroupResponse:
            if error is not None:
                raise error
            # Only the chosen protocol is stored; the group can choose another later from all of them.
            stored = group.members.check(member.member_id, member.instance_id)
            group.members.change_protocols(stored, member.protocols)
            self._sessions.unwatch(group, old.member_id)
            self._sessions.keep_alive(group, member)
            response = group.join_response(member)
            if not was_leader:
                return response
            if caller.api_version >= _SKIP_ASSIGNMENT_FROM:
                response.skip_assignment = True
            else:
                # A leader would assign again, and the other members would never get the assignment.
                response.leader = old.member_id
                response.members = []
            return response

        return Result(records=[GroupRecord(group.group_id, value)], then=then)

    def _has_room(self, group: ClassicGroup, member: ClassicMember | None) -> bool:
        limit = self._view.config.group_max_size
        if group.has(GroupState.PREPARING_REBALANCE):
            # Only members that have joined again count: a lowered limit removes the last ones.
            return (member is not None and member.join is not None) or group.members.joined < limit
        return group.has(GroupState.EMPTY) or member is not None or len(group.members) < limit

    # --- stay and leave ---

    def heartbeat(self, group: ClassicGroup, request: HeartbeatRequest) -> HeartbeatResponse:
        member = group.members.check(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        self._sessions.keep_alive(group, member)
        if group.react(Event.HEARTBEAT) is Action.REFUSE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    def leave(self, group: ClassicGroup, leavers: list[MemberIdentity]) -> Result[LeaveGroupResponse]:
        outcomes = []
        gone: list[str] = []
        for leaver in leavers:
            error = ErrorCode.NONE
            try:
                if self._remove(group, leaver):
                    gone.append(f"{leaver.group_instance_id or leaver.member_id}{_because(leaver.reason)}")
            except KafkaError as failure:
                error = failure.code
            outcomes.append(
                MemberResponse(
                    member_id=leaver.member_id, group_instance_id=leaver.group_instance_id, error_code=error
                )
            )
        if gone:
            records = self._rebalance.advance(group, f"left: {', '.join(gone)}")
        else:
            records = self._rebalance.fewer_awaited(group)
        return Result(LeaveGroupResponse(members=outcomes), records)

    def _remove(self, group: ClassicGroup, leaver: MemberIdentity) -> bool:
        """Remove a member or a pending member.

        `leaver` has the member id. If this id is empty, the instance id names the member. Return True for a
        member, and False for a pending member, which leaves without a rebalance.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, there is no such member; FENCED_INSTANCE_ID, another member has the
                instance id.
        """
        if leaver.member_id in group.pending:
            group.pending.remove(leaver.member_id)
            self._sessions.unwatch(group, leaver.member_id)
            return False
        member_id = leaver.member_id
        if not member_id:  # an administrator names only the instance id
            holder = group.members.holder(leaver.group_instance_id)
            member_id = "" if holder is None else holder.member_id
        self._rebalance.forget(group, group.members.check(member_id, leaver.group_instance_id))
        return True

    def check_commit(
        self,
        group: ClassicGroup,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        in_transaction: bool,
    ) -> None:
        """Check that the sender of a request may commit offsets.

        If the sender is a member, restart its session timeout.

        A sender outside the group sends a negative `generation`. It may commit while the group is empty. In a
        transaction, it may always commit if it sends no member id and no instance id.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, the sender is not a member; FENCED_INSTANCE_ID, another member has
                the instance id; ILLEGAL_GENERATION, `generation` is not the group's generation;
                REBALANCE_IN_PROGRESS, a rebalance must finish first (not in a transaction).
        """
        if generation < 0 and group.state is GroupState.EMPTY:
            return
        if generation < 0 and not member_id and instance_id is None:
            if in_transaction:  # producers name no member before KIP-447
                return
            # From outside the group, while it has members.
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = group.members.check(member_id, instance_id)
        if generation != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if not in_transaction and group.react(Event.COMMIT) is Action.REFUSE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._sessions.keep_alive(group, member)

    def expire(self, group: ClassicGroup, member_id: str) -> list[GroupRecord]:
        """Remove a member or a pending member whose session has timed out. Return the records to append.

        Do nothing if the member has left, or its session may not time out now (`ClassicMember.may_expire`).
        """
        if member_id in group.pending:
            group.pending.remove(member_id)
            return self._rebalance.fewer_awaited(group)
        member = group.members.get(member_id)
        if member is None or not member.may_expire:
            return []
        logger.info("group %s: session of member %s timed out, it was removed", group.group_id, member_id)
        self._rebalance.forget(group, member)
        return self._rebalance.advance(group, f"the session of {member_id} timed out")


def _member(
    request: JoinGroupRequest, caller: Caller, member_id: str, protocols: list[Protocol]
) -> ClassicMember:
    return ClassicMember(
        member_id,
        request.group_instance_id,
        caller.client_id,
        caller.client_host,
        _rebalance_timeout(request),
        request.session_timeout_ms,
        protocols,
    )


def _rebalance_timeout(request: JoinGroupRequest) -> int:
    """Return the rebalance timeout in ms. In JoinGroup v0, which has none, it is the session timeout."""
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms


def _park(group: ClassicGroup, member: ClassicMember) -> Awaitable[JoinGroupResponse]:
    reply: asyncio.Future[JoinGroupResponse] = asyncio.get_running_loop().create_future()
    group.members.park_join(member, reply)
    return reply


def _because(reason: str | None) -> str:
    """Format the client's reason (KIP-800) for the log, as one line of limited length; empty without one."""
    return f": {reason[:255]!r}" if reason else ""
