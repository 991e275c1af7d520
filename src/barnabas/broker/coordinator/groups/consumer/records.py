"""The records of consumer groups, and their conversion to members."""

from __future__ import annotations

from barnabas.broker.coordinator.groups.classic.member import Protocol
from barnabas.broker.coordinator.groups.consumer.member import ClassicSide, ConsumerMember, MemberState
from barnabas.broker.coordinator.groups.modern.records import (
    RecordTypes,
    from_topic_partitions,
    to_topic_partitions,
)
from barnabas.kafka.protocol.records import consumer_group as stored

_STATES = frozenset(MemberState)


def _subscription_value(member: ConsumerMember) -> stored.ConsumerGroupMemberMetadataValue:
    """Return the stored form of a member's metadata and subscription."""
    return stored.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=None
        if member.classic is None
        else stored.ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                stored.ClassicProtocol(name=protocol.name, metadata=protocol.metadata)
                for protocol in member.classic.protocols
            ],
        ),
    )


def _subscribed(member: ConsumerMember, value: stored.ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    """Return `member` with the stored metadata and subscription."""
    classic = value.classic_member_metadata
    return member._replace(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
        regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicSide(
            classic.session_timeout_ms,
            tuple(Protocol(protocol.name, protocol.metadata) for protocol in classic.supported_protocols),
        ),
    )


def _current_value(member: ConsumerMember) -> stored.ConsumerGroupCurrentMemberAssignmentValue:
    """Return the stored form of a member's epoch, state and partitions."""
    return stored.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=to_topic_partitions(member.assigned),
        partitions_pending_revocation=to_topic_partitions(member.revoking),
    )


def _advanced(
    member: ConsumerMember, value: stored.ConsumerGroupCurrentMemberAssignmentValue
) -> ConsumerMember:
    """Return a copy of `member` with the epochs, the state and the partitions of the record `value`."""
    return member._replace(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state) if value.state in _STATES else MemberState.UNKNOWN,
        assigned=from_topic_partitions(value.assigned_partitions),
        revoking=from_topic_partitions(value.partitions_pending_revocation),
    )


TYPES = RecordTypes(
    group=(stored.ConsumerGroupMetadataKey, stored.ConsumerGroupMetadataValue),
    assignment=(
        stored.ConsumerGroupTargetAssignmentMetadataKey,
        stored.ConsumerGroupTargetAssignmentMetadataValue,
    ),
    target=(stored.ConsumerGroupTargetAssignmentMemberKey, stored.ConsumerGroupTargetAssignmentMemberValue),
    subscription=(stored.ConsumerGroupMemberMetadataKey, stored.ConsumerGroupMemberMetadataValue),
    current=(
        stored.ConsumerGroupCurrentMemberAssignmentKey,
        stored.ConsumerGroupCurrentMemberAssignmentValue,
    ),
    new_member=ConsumerMember,
    subscription_value=_subscription_value,
    subscribed=_subscribed,
    current_value=_current_value,
    advanced=_advanced,
)
