"""Requests about groups: a list of all, and from a group's coordinator its members and offsets.

A separate request describes groups of the consumer protocol (KIP-848), with their epochs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from barnabas.base.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.base.types import BrokerId, TopicPartition
from barnabas.client.admin_types import GroupDescription, GroupListing, GroupMember
from barnabas.client.brokers import Brokers, check
from barnabas.client.connection import Connection, UnservedError
from barnabas.kafka.protocol.codec import decode
from barnabas.kafka.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    Member,
)
from barnabas.kafka.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.kafka.protocol.messages.describe_groups import DescribedGroupMember, DescribeGroupsRequest
from barnabas.kafka.protocol.messages.list_groups import ListGroupsRequest
from barnabas.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.kafka.protocol.records.consumer_protocol import ConsumerProtocolAssignment

#: the protocol type of consumers
_CONSUMER = "consumer"
_PROTOCOLS = {0: "classic", 1: "consumer"}
#: the last versions of OffsetFetch and OffsetCommit that have names of topics, and not their ids
_BY_NAME = 9
_VERSION = struct.Struct(">h")


class Committed(NamedTuple):
    """The next offset that a group will read, and the metadata of the commit."""

    offset: int
    metadata: str


def list_groups(brokers: Brokers) -> list[GroupListing]:
    """Return every consumer group of the cluster, from all brokers."""

    def attempt(deadline: float) -> list[GroupListing]:
        listed = []
        for address in brokers.addresses(brokers.metadata([], deadline)).values():
            response = brokers.connected(address, deadline, lambda to: to.ask(ListGroupsRequest()))
            check(response.error_code, f"the groups of the broker at {address}")
            listed += [
                GroupListing(
                    each.group_id, each.group_state or "Unknown", each.group_type.lower() or "unknown"
                )
                for each in response.groups
                if each.protocol_type in ("", _CONSUMER)
            ]
        return sorted(listed)

    return brokers.insist(attempt)


def describe_group(connection: Connection, coordinator: BrokerId, group: str) -> GroupDescription:
    """Return a group of either protocol; one that is not there is Dead.

    Raises:
        KafkaError: the coordinator refused.
        ClientError: it does not answer.
    """
    (found,) = connection.ask(DescribeGroupsRequest(groups=[group])).groups
    if found.error_code != ErrorCode.GROUP_ID_NOT_FOUND:  # as it is said since version 6
        check(found.error_code, group, found.error_message)
    if found.group_state != "Dead" and not found.error_code:
        members = tuple(map(_classic_member, found.members))
        return GroupDescription(group, found.group_state, found.protocol_data, coordinator, members)
    try:
        return _describe_consumer_group(connection, coordinator, group)
    except UnservedError:
        pass
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
    return GroupDescription(group, "Dead", "", coordinator, ())


def committed_offsets(connection: Connection, group: str) -> dict[TopicPartition, int]:
    """Return, by partition, the next offset that the group will read.

    Raises:
        KafkaError: the coordinator refused.
        ClientError: it does not answer.
    """
    found = committed(connection, group)
    return {partition: each.offset for partition, each in sorted(found.items())}


def committed(
    connection: Connection, group: str, *, only: Iterable[TopicPartition] | None = None, stable: bool = False
) -> dict[TopicPartition, Committed]:
    """Return the group's committed offsets, for all of its partitions, or `only` for these.

    Args:
        stable: whether the coordinator refuses while a transaction may still change an offset (KIP-447).

    Raises:
        KafkaError: the coordinator refused, UNSTABLE_OFFSET_COMMIT among others.
        ClientError: it does not answer.
    """
    before_v8: list[OffsetFetchRequestTopic] | None = None
    since_v8: list[OffsetFetchRequestTopics] | None = None
    if only is not None:
        by_topic: dict[str, list[int]] = {}
        for topic, number in only:
            by_topic.setdefault(topic, []).append(number)
        wanted = by_topic.items()
        before_v8 = [OffsetFetchRequestTopic(name=name, partition_indexes=each) for name, each in wanted]
        since_v8 = [OffsetFetchRequestTopics(name=name, partition_indexes=each) for name, each in wanted]
    request = OffsetFetchRequest(
        group_id=group,
        topics=before_v8,
        groups=[OffsetFetchRequestGroup(group_id=group, topics=since_v8)],
        require_stable=stable,
    )
    answer = connection.ask(request, at_most=_BY_NAME)
    found = answer.groups[0] if answer.groups else answer
    check(found.error_code, group)
    offsets = {}
    for partition, told in _partitions(found.topics):
        check(told.error_code, str(partition))
        if told.committed_offset >= 0:
            offsets[partition] = Committed(told.committed_offset, told.metadata or "")
    return offsets


def commit_offsets(
    connection: Connection,
    group: str,
    offsets: Mapping[TopicPartition, int],
    metadata: Mapping[TopicPartition, str] | None = None,
) -> None:
    """Commit in the name of a group without members, with a text beside an offset where `metadata` has one.

    Raises:
        KafkaError: the coordinator refused, UNKNOWN_MEMBER_ID for a group with members among others.
        ClientError: it does not answer.
    """
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for partition, offset in offsets.items():
        topics.setdefault(partition.topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=offset,
                committed_metadata=(metadata or {}).get(partition, ""),
            )
        )
    request = OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
    )
    for partition, told in _partitions(connection.ask(request, at_most=_BY_NAME).topics):
        check(told.error_code, f"{group}: {partition}")


def delete_group(connection: Connection, group: str) -> None:
    """Delete a group without members, with its offsets.

    Raises:
        KafkaError: the coordinator refused, NON_EMPTY_GROUP and GROUP_ID_NOT_FOUND among others.
        ClientError: it does not answer.
    """
    (told,) = connection.ask(DeleteGroupsRequest(groups_names=[group])).results
    check(told.error_code, group)


def _partitions(topics: Iterable[Any]) -> Iterable[tuple[TopicPartition, Any]]:
    for topic in topics:
        for told in topic.partitions:
            yield TopicPartition(topic.name, told.partition_index), told


def _classic_member(member: DescribedGroupMember) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        _classic_assignment(bytes(member.member_assignment)),
    )


def _classic_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Empty where the group's protocol is not that of consumers (Kafka Connect's)."""
    try:
        (version,) = _VERSION.unpack_from(data)
        version = min(version, ConsumerProtocolAssignment.versions[1])
        found = decode(ConsumerProtocolAssignment, version, data, _VERSION.size)
    except (struct.error, ProtocolError):
        return ()
    return tuple(
        TopicPartition(each.topic, number) for each in found.assigned_partitions for number in each.partitions
    )


def _describe_consumer_group(connection: Connection, coordinator: BrokerId, group: str) -> GroupDescription:
    (found,) = connection.ask(ConsumerGroupDescribeRequest(group_ids=[group])).groups
    check(found.error_code, group, found.error_message)
    return GroupDescription(
        group,
        found.group_state,
        found.assignor_name,
        coordinator,
        tuple(map(_member, found.members)),
        "consumer",
        found.group_epoch,
        found.assignment_epoch,
    )


def _member(member: Member) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        _places(member.assignment),
        _PROTOCOLS.get(member.member_type),
        member.member_epoch,
        _places(member.target_assignment),
        member.subscribed_topic_regex or None,
    )


def _places(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )
