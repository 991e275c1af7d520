"""Validates a ShareGroupHeartbeat without the state of its group."""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.coordinator.groups.modern.member import JOIN_EPOCH, LEAVE_EPOCH
from barnabas.broker.coordinator.partitioning import is_storable
from barnabas.kafka.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest


def check_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """Reject a request that would be invalid in any state of its group.

    Raises:
        KafkaError: INVALID_REQUEST, a field is not valid.
    """
    _check(request.member_id != "", "MemberId can't be empty.")
    _check(is_storable(request.member_id), "MemberId is too long.")
    _check(request.group_id != "", "GroupId can't be empty.")
    _check(request.rack_id != "", "RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        _check(bool(request.subscribed_topic_names), "SubscribedTopicNames must be set in first request.")
    else:
        _check(request.member_epoch >= LEAVE_EPOCH, "MemberEpoch is invalid.")


def _check(is_met: bool, message: str) -> None:
    if not is_met:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
