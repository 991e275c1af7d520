"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup (KIP-848).

These members have no leader. JoinGroup returns the member's epoch as its generation at once, and SyncGroup
returns the assignment. Heartbeat returns REBALANCE_IN_PROGRESS while the member must join again. SyncGroup
returns it if the group epoch is above the member's, except to a member that must first revoke partitions.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.coordinator.contract import Result
from barnabas.broker.coordinator.groups.caller import Caller
from barnabas.broker.coordinator.groups.classic.group import ClassicGroup
from barnabas.broker.coordinator.groups.classic.member import Protocol
from barnabas.broker.coordinator.groups.consumer.conversion import classic_assignment, may_downgrade
from barnabas.broker.coordinator.groups.consumer.draft import GroupDraft
from barnabas.broker.coordinator.groups.consumer.group import ConsumerGroup
from barnabas.broker.coordinator.groups.consumer.member import ClassicSide, ConsumerMember, MemberState
from barnabas.broker.coordinator.groups.consumer.membership import ConsumerMembership
from barnabas.broker.coordinator.groups.subscription import CONSUMER_PROTOCOL_TYPE, decode_subscription
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.kafka.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.kafka.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from barnabas.kafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

#: from this version a dynamic member joins with the id it was given (KIP-394)
_MEMBER_ID_REQUIRED_FROM = 4


class ClassicMembers:
    """Serves members of the classic protocol in consumer groups. `GroupShard` documents the operations.

    Args:
        membership: adds and removes members of these groups.
        unique: returns a different text at each call. The text becomes the end of a new member id.
    """

    def __init__(self, membership: ConsumerMembership, unique: Callable[[], str]) -> None:
        self._membership = membership
        self._topics = membership.topics
        self._assigner = membership.assigner
        self._timeouts = membership.timeouts
        self._unique = unique

    def join(
        self, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller
    ) -> Result[JoinGroupResponse]:
        """Handle JoinGroup of the classic protocol. The response does not wait for other members.

        From JoinGroup v4 on, a dynamic member without a member id gets one with the error MEMBER_ID_REQUIRED
        in the response, and does not join yet. If a static member of the consumer protocol comes back with
        the classic protocol, the group can become classic (`may_downgrade`).

        Raises:
            KafkaError: GROUP_MAX_SIZE_REACHED, the group is full; INCONSISTENT_GROUP_PROTOCOL, the protocols
                do not fit those of the group or cannot be decoded. Only if a static member sends a member id:
                UNKNOWN_MEMBER_ID, no member has the instance id; FENCED_INSTANCE_ID, another member has the
                instance id.
        """
        instance_id = request.group_instance_id
        member_id = request.member_id or f"{instance_id or caller.client_id}-{self._unique()}"
        self._membership.check_room(group, member_id)
        protocols = tuple(Protocol(protocol.name, protocol.metadata) for protocol in request.protocols)
        _check_protocols(group, request.protocol_type, protocols)
        if not request.member_id and instance_id is None and caller.api_version >= _MEMBER_ID_REQUIRED_FROM:
            return Result(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
        draft = GroupDraft(group)
        before = self._find(draft, request, member_id)
        holder = group.holder(instance_id)
        member, owned = self._updated(before, request, caller, protocols)
        changed = self._membership.subscribe(draft, before, member)
        changed |= self._membership.regexes.change(draft, before.regex, member.regex).is_changed
        if changed or self._assigner.is_outdated(draft.group):
            self._assigner.raise_epoch(draft)
        members = list(draft.group.members.values())
        # The replaced static member may have been the last one of the consumer protocol.
        replaces = holder is not None and holder.classic is None
        classic: ClassicGroup | None = None
        if replaces and may_downgrade(members, self._membership.view.config):
            if not changed:
                self._assigner.reconcile(draft, member_id, owned, subscription_changed=False)
            member = draft.group.members[member_id]
            classic = self._membership.downgrade(draft, list(draft.group.members.values()))
        else:
            self._assigner.assign(draft)
            member = self._assigner.reconcile(draft, member_id, owned, subscription_changed=changed)
        response = JoinGroupResponse(
            member_id=member_id,
            generation_id=member.epoch if classic is None else classic.generation,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=protocols[0].name,
        )

        def then(error: KafkaError | None) -> JoinGroupResponse:
            if error is not None:
                raise error
            if holder is not None and holder.member_id != member_id:
                self._timeouts.forget(group.group_id, holder.member_id)
            if classic is not None:
                reason = "a static member has come back with another subscription" if changed else ""
                self._membership.downgraded(classic, reason)
            else:
                self._timeouts.joined(group.group_id, member_id, member.rebalance_timeout_ms)
                self._timeouts.expect_heartbeat(group.group_id, member_id, request.session_timeout_ms)
            return response

        return Result(records=draft.records, then=then)

    def _find(self, draft: GroupDraft, request: JoinGroupRequest, member_id: str) -> ConsumerMember:
        """Return the member as it was before the request, or a new one.

        If a static member has restarted, replace its predecessor in the draft, and return its successor.

        Raises:
            KafkaError: only if the request has an instance id and a member id: UNKNOWN_MEMBER_ID, no member
                has the instance id; FENCED_INSTANCE_ID, another member has the instance id.
        """
        group, instance_id = draft.group, request.group_instance_id
        if instance_id is None:
            return group.members.get(member_id, ConsumerMember(member_id))
        if request.member_id:
            return group.static_member(instance_id, member_id)
        holder = group.holder(instance_id)
        if holder is None:
            return ConsumerMember(member_id)
        return self._membership.replace(draft, holder, member_id)

    def _updated(
        self,
        member: ConsumerMember,
        request: JoinGroupRequest,
        caller: Caller,
        protocols: tuple[Protocol, ...],
    ) -> tuple[ConsumerMember, dict[bytes, frozenset[int]]]:
        """Return the member with the fields of a JoinGroup, and the partitions that it reports as owned.

        Raises:
            KafkaError: INCONSISTENT_GROUP_PROTOCOL, the metadata of the protocols cannot be decoded.
        """
        try:
            subscription = decode_subscription(protocols[0].metadata)
        except ValueError as error:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the subscription cannot be read: {error}"
            ) from error
        timeout, instance_id = request.rebalance_timeout_ms, request.group_instance_id
        owned = self._topics.identified(
            {owned.topic: frozenset(owned.partitions) for owned in subscription.owned_partitions}
        )
        updated = member._replace(
            instance_id=member.instance_id if instance_id is None else instance_id,
            rack_id=subscription.rack_id or member.rack_id,
            client_id=caller.client_id,
            client_host=caller.client_host,
            topics=frozenset(subscription.topics),
            regex="",
            rebalance_timeout_ms=request.session_timeout_ms if timeout < 0 else timeout,
            classic=ClassicSide(request.session_timeout_ms, protocols),
        )
        return updated, dict(owned)

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest) -> Result[SyncGroupResponse]:
        """Handle SyncGroup: return the member's assignment.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION, as `_check`;
                INCONSISTENT_GROUP_PROTOCOL, the request names another protocol; REBALANCE_IN_PROGRESS, the
                member must join again.
        """
        member, classic = _check(group, request.member_id, request.group_instance_id, request.generation_id)
        protocol = classic.protocols[0]
        if (request.protocol_type or CONSUMER_PROTOCOL_TYPE) != CONSUMER_PROTOCOL_TYPE or (
            request.protocol_name or protocol.name
        ) != protocol.name:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_join(group, member)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._timeouts.synced(group.group_id, member.member_id)
        self._timeouts.expect_heartbeat(group.group_id, member.member_id, classic.session_timeout_ms)
        return Result(
            SyncGroupResponse(
                protocol_type=CONSUMER_PROTOCOL_TYPE,
                protocol_name=protocol.name,
                assignment=classic_assignment(member.assigned, self._topics, protocol.metadata),
            )
        )

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest) -> HeartbeatResponse:
        member, classic = _check(group, request.member_id, request.group_instance_id, request.generation_id)
        self._timeouts.expect_heartbeat(group.group_id, member.member_id, classic.session_timeout_ms)
        if (
            member.epoch < group.epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and group.can_advance(member))
        ):
            self._expect_join(group, member)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    def leave(self, group: ConsumerGroup, leavers: list[MemberIdentity]) -> Result[LeaveGroupResponse]:
        response = LeaveGroupResponse()
        gone = []
        for leaver in leavers:
            error = ErrorCode.NONE
            try:
                gone.append(_leaver(group, leaver))
            except KafkaError as failure:
                error = failure.code
            response.members.append(
                MemberResponse(
                    member_id=leaver.member_id, group_instance_id=leaver.group_instance_id, error_code=error
                )
            )
        return self._membership.remove(group, gone, "it left", response)

    def _expect_join(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        self._timeouts.expect_join(group.group_id, member.member_id, member.rebalance_timeout_ms)


def _check_protocols(group: ConsumerGroup, protocol_type: str, protocols: tuple[Protocol, ...]) -> None:
    """Check the protocols of a member that joins.

    Raises KafkaError INCONSISTENT_GROUP_PROTOCOL if `protocol_type` is not "consumer", or all classic members
    and the new one have no protocol in common.
    """
    names = {protocol.name for protocol in protocols}
    for member in group.classic_members():
        assert member.classic is not None
        names &= {protocol.name for protocol in member.classic.protocols}
    if protocol_type != CONSUMER_PROTOCOL_TYPE or not names:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _check(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, ClassicSide]:
    """Return the member that sent a request by the classic protocol, and what the member sent in JoinGroup.

    Raises:
        KafkaError: UNKNOWN_MEMBER_ID, there is no such member, or it uses the consumer protocol;
            FENCED_INSTANCE_ID, another member has the instance id; ILLEGAL_GENERATION, `generation` is not
            the member's epoch.
    """
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = group.static_member(instance_id, member_id)
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if generation != member.epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return member, member.classic


def _leaver(group: ConsumerGroup, leaver: MemberIdentity) -> ConsumerMember:
    if leaver.group_instance_id is None:
        return group.member(leaver.member_id)
    if leaver.member_id:
        return group.static_member(leaver.group_instance_id, leaver.member_id)
    holder = group.holder(leaver.group_instance_id)
    if holder is None:  # an administrator names only the instance id
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    return holder
