"""The records of share groups, and their conversion to members and partitions."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.base.types import TopicId
from barnabas.broker.coordinator.groups.modern.records import (
    RecordTypes,
    from_topic_partitions,
    to_topic_partitions,
)
from barnabas.broker.coordinator.groups.share.initialization import (
    InitializationStates,
    StateTopic,
    StateTopics,
)
from barnabas.broker.coordinator.groups.share.member import ShareMember
from barnabas.kafka.protocol.records import share_group as stored

#: Kafka's number for a member that has its target; members of share groups have no other state
_STABLE = 0


def _subscription_value(member: ShareMember) -> stored.ShareGroupMemberMetadataValue:
    """Return the stored form of a member's metadata and subscription."""
    return stored.ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
    )


def _subscribed(member: ShareMember, value: stored.ShareGroupMemberMetadataValue) -> ShareMember:
    """Return `member` with the stored metadata and subscription."""
    return member._replace(
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
    )


def _current_value(member: ShareMember) -> stored.ShareGroupCurrentMemberAssignmentValue:
    """Return the stored form of a member's epoch and partitions."""
    return stored.ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=_STABLE,
        assigned_partitions=to_topic_partitions(member.assigned),
    )


def _advanced(member: ShareMember, value: stored.ShareGroupCurrentMemberAssignmentValue) -> ShareMember:
    """Return `member` with the stored epoch and partitions."""
    return member._replace(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        assigned=from_topic_partitions(value.assigned_partitions),
    )


TYPES = RecordTypes(
    group=(stored.ShareGroupMetadataKey, stored.ShareGroupMetadataValue),
    assignment=(
        stored.ShareGroupTargetAssignmentMetadataKey,
        stored.ShareGroupTargetAssignmentMetadataValue,
    ),
    target=(stored.ShareGroupTargetAssignmentMemberKey, stored.ShareGroupTargetAssignmentMemberValue),
    subscription=(stored.ShareGroupMemberMetadataKey, stored.ShareGroupMemberMetadataValue),
    current=(stored.ShareGroupCurrentMemberAssignmentKey, stored.ShareGroupCurrentMemberAssignmentValue),
    new_member=ShareMember,
    subscription_value=_subscription_value,
    subscribed=_subscribed,
    current_value=_current_value,
    advanced=_advanced,
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
