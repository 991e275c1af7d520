"""Validates a ConsumerGroupHeartbeat without the state of its group."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.coordinator.groups.consumer.member import LEAVE_STATIC_EPOCH
from barnabas.broker.coordinator.groups.modern.member import JOIN_EPOCH, LEAVE_EPOCH
from barnabas.broker.coordinator.partitioning import is_storable
from barnabas.kafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

#: from this version members make their ids themselves (KIP-1082)
_OWN_MEMBER_ID_FROM = 1


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    """Reject a request that would be invalid in any state of its group.

    `version` is the version of the request, and `assignors` are the names of the enabled assignors.

    Raises:
        KafkaError: INVALID_REQUEST, a field is not valid; UNSUPPORTED_ASSIGNOR, the requested assignor is not
            in `assignors`.
    """
    epoch = request.member_epoch
    _check(request.group_id != "", "GroupId can't be empty.")
    _check(request.instance_id != "", "InstanceId can't be empty.")
    _check(request.rack_id != "", "RackId can't be empty.")
    may_lack_id = version < _OWN_MEMBER_ID_FROM and epoch in (JOIN_EPOCH, LEAVE_STATIC_EPOCH)
    _check(request.member_id != "" or may_lack_id, "MemberId can't be empty.")
    _check(is_storable(request.member_id), "MemberId is too long.")
    if epoch == JOIN_EPOCH:
        _check(request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request.")
        _check(request.topic_partitions == [], "TopicPartitions must be empty when (re-)joining.")
        _check(
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )
    elif epoch == LEAVE_STATIC_EPOCH:
        _check(request.instance_id is not None, "InstanceId can't be null.")
    else:
        _check(epoch >= LEAVE_EPOCH, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors:"
            f" {', '.join(assignors)}.",
        )


def _check(is_met: bool, message: str) -> None:
    if not is_met:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
