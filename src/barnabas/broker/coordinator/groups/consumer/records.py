"""The records of consumer groups, and their conversion to members and partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.broker.coordinator.groups.classic.member import Protocol
from barnabas.broker.coordinator.groups.consumer.member import ClassicSide, ConsumerMember, MemberState
from barnabas.broker.coordinator.groups.fact_records import decode_fact, encode_fact
from barnabas.broker.coordinator.groups.modern.member import Partitions
from barnabas.kafka.protocol.records import consumer_group as stored
from barnabas.kafka.protocol.schema import Message

_KIND_OF = {key: kind for kind, (key, _) in stored.KINDS.items()}

# --- bytes ---


class ConsumerGroupRecord(NamedTuple):
    """One record of a consumer group. A value of None deletes the key."""

    key: stored.Key
    value: Message | None

    def encode(self) -> tuple[bytes, bytes | None]:
        return encode_fact(_KIND_OF[type(self.key)], self.key, self.value)


def decode_record(kind: int, key: bytes, value: bytes | None) -> ConsumerGroupRecord:
    """Decode a record of one of the kinds in `barnabas.kafka.protocol.records.consumer_group.KINDS`.

    Raises:
        ProtocolError: the record cannot be decoded, or its value has an unknown version.
    """
    return ConsumerGroupRecord(*decode_fact(stored.KINDS, kind, key, value))


# --- keys ---


def member_key(group_id: str, member_id: str) -> stored.ConsumerGroupMemberMetadataKey:
    return stored.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)


def current_key(group_id: str, member_id: str) -> stored.ConsumerGroupCurrentMemberAssignmentKey:
    return stored.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)


def target_key(group_id: str, member_id: str) -> stored.ConsumerGroupTargetAssignmentMemberKey:
    return stored.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)


def regex_key(group_id: str, regex: str) -> stored.ConsumerGroupRegularExpressionKey:
    return stored.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)


# --- values ---


def subscription_value(member: ConsumerMember) -> stored.ConsumerGroupMemberMetadataValue:
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


def subscribed(member: ConsumerMember, value: stored.ConsumerGroupMemberMetadataValue) -> ConsumerMember:
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


def current_value(member: ConsumerMember) -> stored.ConsumerGroupCurrentMemberAssignmentValue:
    """Return the stored form of a member's epoch, state and partitions."""
    return stored.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=to_topic_partitions(member.assigned),
        partitions_pending_revocation=to_topic_partitions(member.revoking),
    )


def advanced(
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


_STATES = frozenset(MemberState)


def to_topic_partitions(partitions: Partitions) -> list[stored.TopicPartitions]:
    return [
        stored.TopicPartitions(topic_id=topic, partitions=sorted(numbers))
        for topic, numbers in partitions.items()
    ]


def from_topic_partitions(topics: Iterable[stored.TopicPartitions]) -> Partitions:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics if topic.partitions}
