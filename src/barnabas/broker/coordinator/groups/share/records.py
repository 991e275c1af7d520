"""The records of share groups, and their conversion to members and partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.base.types import TopicId
from barnabas.broker.coordinator.groups.consumer.records import from_topic_partitions, to_topic_partitions
from barnabas.broker.coordinator.groups.fact_records import decode_fact, encode_fact
from barnabas.broker.coordinator.groups.share.initialization import (
    InitializationStates,
    StateTopic,
    StateTopics,
)
from barnabas.broker.coordinator.groups.share.member import ShareMember
from barnabas.kafka.protocol.records import share_group as stored
from barnabas.kafka.protocol.schema import Message

_KIND_OF = {key: kind for kind, (key, _) in stored.KINDS.items()}

#: Kafka's number for a member that has its target; members of share groups have no other state
_STABLE = 0


class ShareGroupRecord(NamedTuple):
    """One record of a share group. A value of None deletes the key."""

    key: stored.Key
    value: Message | None

    def encode(self) -> tuple[bytes, bytes | None]:
        return encode_fact(_KIND_OF[type(self.key)], self.key, self.value)


def decode_record(kind: int, key: bytes, value: bytes | None) -> ShareGroupRecord:
    """Decode a record of one of the kinds in `barnabas.kafka.protocol.records.share_group.KINDS`.

    Raises:
        ProtocolError: the record cannot be decoded, or its value has an unknown version.
    """
    return ShareGroupRecord(*decode_fact(stored.KINDS, kind, key, value))


# --- keys ---


def member_key(group_id: str, member_id: str) -> stored.ShareGroupMemberMetadataKey:
    return stored.ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id)


def current_key(group_id: str, member_id: str) -> stored.ShareGroupCurrentMemberAssignmentKey:
    return stored.ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)


def target_key(group_id: str, member_id: str) -> stored.ShareGroupTargetAssignmentMemberKey:
    return stored.ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)


# --- values ---


def subscription_value(member: ShareMember) -> stored.ShareGroupMemberMetadataValue:
    """Return the stored form of a member's metadata and subscription."""
    return stored.ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
    )


def subscribed(member: ShareMember, value: stored.ShareGroupMemberMetadataValue) -> ShareMember:
    """Return `member` with the stored metadata and subscription."""
    return member._replace(
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
    )


def current_value(member: ShareMember) -> stored.ShareGroupCurrentMemberAssignmentValue:
    """Return the stored form of a member's epoch and partitions."""
    return stored.ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=_STABLE,
        assigned_partitions=to_topic_partitions(member.assigned),
    )


def advanced(member: ShareMember, value: stored.ShareGroupCurrentMemberAssignmentValue) -> ShareMember:
    """Return `member` with the stored epoch and partitions."""
    return member._replace(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        assigned=from_topic_partitions(value.assigned_partitions),
    )


def partitions_value(partitions: InitializationStates) -> stored.ShareGroupStatePartitionMetadataValue:
    """Return the stored form of a group's initializing, initialized and deleting partitions."""
    return stored.ShareGroupStatePartitionMetadataValue(
        initializing_topics=_to_infos(partitions.initializing),
        initialized_topics=_to_infos(partitions.initialized),
        deleting_topics=[
            stored.TopicInfo(topic_id=topic_id, topic_name=name)
            for topic_id, name in partitions.deleting.items()
        ],
    )


def partitions_of(value: stored.ShareGroupStatePartitionMetadataValue) -> InitializationStates:
    """Return a group's initializing, initialized and deleting partitions from their stored form."""
    return InitializationStates(
        _from_infos(value.initializing_topics),
        _from_infos(value.initialized_topics),
        {topic.topic_id: topic.topic_name for topic in value.deleting_topics},
    )


def _to_infos(topics: StateTopics) -> list[stored.TopicPartitionsInfo]:
    return [
        stored.TopicPartitionsInfo(topic_id=topic_id, topic_name=name, partitions=sorted(numbers))
        for topic_id, (name, numbers) in topics.items()
    ]


def _from_infos(infos: Iterable[stored.TopicPartitionsInfo]) -> dict[TopicId, StateTopic]:
    return {info.topic_id: StateTopic(info.topic_name, frozenset(info.partitions)) for info in infos}
