"""Handles ShareGroupHeartbeat: members join, stay and leave, and get their assignments (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.metrics import Meter
from barnabas.base.text import logger_of
from barnabas.broker.coordinator.contract import Result
from barnabas.broker.coordinator.groups.caller import Caller
from barnabas.broker.coordinator.groups.modern.delayed_assignment import interval_without_partitions
from barnabas.broker.coordinator.groups.modern.member import JOIN_EPOCH
from barnabas.broker.coordinator.groups.modern.timeouts import ExpiredTimeout, Timeouts
from barnabas.broker.coordinator.groups.share.draft import ShareGroupDraft
from barnabas.broker.coordinator.groups.share.group import ShareGroup
from barnabas.broker.coordinator.groups.share.member import ShareMember
from barnabas.broker.coordinator.groups.share.target_assignment import ShareTargetAssigner
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

logger = logger_of(__name__, is_limited=True)


class ShareMembership:
    """Adds and removes members of one shard's share groups. `GroupShard` documents the operations' errors.

    Args:
        view: settings of the broker and of groups.
        assigner: raises group epochs, and computes target assignments.
        timeouts: the session timeouts of members.
        initialize: called with a group id; begins to initialize the partitions of this group.
        rebalances: counts the rebalances. As in Kafka, a member that leaves does not count as a rebalance.
    """

    def __init__(
        self,
        view: BrokerView,
        assigner: ShareTargetAssigner,
        timeouts: Timeouts,
        initialize: Callable[[str], None],
        rebalances: Meter,
    ) -> None:
        self._view = view
        self._assigner = assigner
        self._timeouts = timeouts
        self._initialize = initialize
        self._rebalances = rebalances

    def heartbeat(
        self, draft: ShareGroupDraft, request: ShareGroupHeartbeatRequest, caller: Caller
    ) -> Result[ShareGroupHeartbeatResponse]:
        """Handle the heartbeat of a member that joins or stays.

        `draft` is a draft of the group. It collects the changes, and the records that store them.

        Raises:
            KafkaError: GROUP_MAX_SIZE_REACHED, the group is full; UNKNOWN_MEMBER_ID, no member has the
                request's member id; FENCED_MEMBER_EPOCH, the request's epoch is neither the member's current
                nor its previous one.
        """
        group_id, group = draft.group_id, draft.group
        self._check_room(group, request.member_id)
        before = _find(group, request)
        member = _updated(before, request, caller)
        if member != before or member.member_id not in group.members:
            draft.put_subscription(member)
        if not group.epoch or member.topics != before.topics or self._assigner.is_outdated(draft.group):
            self._rebalances.add()
            self._assigner.raise_epoch(draft)
            self._assigner.initialize(draft)
        self._assigner.assign(draft)
        after = self._assigner.reconcile(draft, member.member_id)
        response = self._response(request, draft.group, before, after)
        is_initializing = bool(draft.group.partitions.initializing)

        def then(error: KafkaError | None) -> ShareGroupHeartbeatResponse:
            if error is not None:
                raise error
            self._timeouts.expect_heartbeat(
                group_id, after.member_id, self._view.group_config(group_id).share_session_timeout_ms
            )
            if is_initializing:
                self._initialize(group_id)
            return response

        return Result(records=draft.records, then=then)

    def leave(
        self, group: ShareGroup, request: ShareGroupHeartbeatRequest
    ) -> Result[ShareGroupHeartbeatResponse]:
        """Handle the heartbeat of a member that leaves the group.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, there is no such member.
        """
        member = group.member(request.member_id)
        response = ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)

        def then(error: KafkaError | None) -> ShareGroupHeartbeatResponse:
            if error is not None:
                raise error
            self._removed(group.group_id, member, "it left")
            return response

        return Result(records=self._removal(group, member).records, then=then)

    def fence(self, group: ShareGroup, late: ExpiredTimeout) -> Result[None]:
        """Remove the member that `late` names, because its session has expired.

        Do nothing if the member has left, or has sent a heartbeat meanwhile
        (`ExpiredTimeout.is_still_expired`). If the removal cannot be stored, set the timeout again.
        """
        member = group.members.get(late.member_id)
        if member is None or not late.is_still_expired():
            return Result()

        def then(error: KafkaError | None) -> None:
            if error is not None:
                late.restart()
                raise error
            self._removed(group.group_id, member, late.reason)

        return Result(records=self._removal(group, member).records, then=then)

    def _removal(self, group: ShareGroup, member: ShareMember) -> ShareGroupDraft:
        draft = ShareGroupDraft(group)
        draft.remove_member(member.member_id)
        self._assigner.raise_epoch(draft)
        return draft

    def _removed(self, group_id: str, member: ShareMember, reason: str) -> None:
        logger.info("share group %s: member %s was removed: %s", group_id, member.member_id, reason)
        self._timeouts.forget(group_id, member.member_id)

    def _check_room(self, group: ShareGroup, member_id: str) -> None:
        limit = self._view.config.group_share_max_size
        if len(group.members) >= limit and member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {limit} members.",
            )

    def _response(
        self,
        request: ShareGroupHeartbeatRequest,
        group: ShareGroup,
        before: ShareMember,
        after: ShareMember,
    ) -> ShareGroupHeartbeatResponse:
        interval_ms = self._view.group_config(group.group_id).share_heartbeat_interval_ms
        is_unready = group.epoch > group.assignment_epoch or bool(group.partitions.initializing)
        if is_unready and not after.assigned:
            interval_ms = interval_without_partitions(interval_ms, len(group.members))
        response = ShareGroupHeartbeatResponse(
            member_id=after.member_id, member_epoch=after.epoch, heartbeat_interval_ms=interval_ms
        )
        is_full = request.member_epoch == JOIN_EPOCH or request.subscribed_topic_names is not None
        if is_full or after.assigned != before.assigned:
            response.assignment = Assignment(
                topic_partitions=[
                    TopicPartitions(topic_id=topic, partitions=sorted(partitions))
                    for topic, partitions in after.assigned.items()
                ]
            )
        return response


def _find(group: ShareGroup, request: ShareGroupHeartbeatRequest) -> ShareMember:
    """Return the member as it was before the request. If a new member joins, return a new `ShareMember`.

    Raises:
        KafkaError: UNKNOWN_MEMBER_ID, the request does not join, and no member has its member id;
            FENCED_MEMBER_EPOCH, the request's epoch is neither the member's current nor its previous one.
    """
    member_id, epoch = request.member_id, request.member_epoch
    if epoch == JOIN_EPOCH:
        return group.members.get(member_id, ShareMember(member_id))
    member = group.member(member_id)
    if epoch not in (member.epoch, member.previous_epoch):  # the last answer may have been lost
        relation = "greater" if epoch > member.epoch else "smaller"
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a {relation} member epoch ({epoch}) than the one known by the group"
            f" coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
        )
    return member


def _updated(member: ShareMember, request: ShareGroupHeartbeatRequest, caller: Caller) -> ShareMember:
    """Return the member updated with the fields of its heartbeat."""
    names = request.subscribed_topic_names
    return member._replace(
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        topics=member.topics if names is None else frozenset(names),
    )
