"""Requests about groups: a list of all groups; members and offsets from a group's coordinator.

Separate requests describe groups of the consumer protocol (KIP-848) and share groups (KIP-932).
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from barnabas.base.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.base.types import BrokerId, TopicPartition
from barnabas.client import share_groups
from barnabas.client.admin_types import GroupDescription, GroupListing, GroupMember
from barnabas.client.brokers import Brokers, check
from barnabas.client.connection import BrokerConnection, UnservedError
from barnabas.client.leaders import by_partition, by_topic
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

#: the protocol types of consumers; a group without members may have none
_OF_CONSUMERS = ("", "consumer", "share")
_PROTOCOLS = {0: "classic", 1: "consumer"}
#: the last versions of OffsetFetch and OffsetCommit that have names of topics, and not their ids
_BY_NAME = 9
#: groups in one OffsetFetch request
_AT_ONCE = 100
_VERSION = struct.Struct(">h")


class Committed(NamedTuple):
    """The next offset that a group will read, and the metadata of the commit."""

    offset: int
    metadata: str


def list_groups(brokers: Brokers) -> list[GroupListing]:
    """Return every consumer group and share group of the cluster, from all brokers, in order of their ids.

    Raises:
        KafkaError: a broker rejected the request.
        ClientError: a broker does not answer.
    """

    def attempt(deadline: float) -> list[GroupListing]:
        answers = brokers.ask_every(ListGroupsRequest(), deadline=deadline)
        for failure in answers.failures.values():
            raise failure
        listed = []
        for broker, response in answers.responses.items():
            check(response.error_code, f"the groups of broker {broker}")
            listed += [
                GroupListing(
                    each.group_id, each.group_state or "Unknown", each.group_type.lower() or "unknown"
                )
                for each in response.groups
                if each.protocol_type in _OF_CONSUMERS
            ]
        return sorted(listed)

    return brokers.retry(attempt)


def describe_group(connection: BrokerConnection, coordinator: BrokerId, group: str) -> GroupDescription:
    """Return the description of a group of any type. The state of a missing group is Dead.

    `connection` leads to the group's coordinator, whose broker id is `coordinator`.

    Raises:
        KafkaError: the coordinator rejected the request.
        ClientError: the coordinator does not answer.
    """
    (found,) = connection.ask(DescribeGroupsRequest(groups=[group])).groups
    if found.error_code != ErrorCode.GROUP_ID_NOT_FOUND:  # as it is said since version 6
        check(found.error_code, group, found.error_message)
    if found.group_state != "Dead" and not found.error_code:
        members = tuple(map(_classic_member, found.members))
        return GroupDescription(group, found.group_state, found.protocol_data, coordinator, members)
    for describe in (_describe_consumer_group, share_groups.describe_group):
        try:
            return describe(connection, coordinator, group)
        except UnservedError:
            pass
        except KafkaError as error:
            if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
    return GroupDescription(group, "Dead", "", coordinator, ())


def committed_offsets(connection: BrokerConnection, group: str) -> dict[TopicPartition, int]:
    """Return, by partition, the next offset that the group will read.

    Partitions without a committed offset are left out.

    Raises:
        KafkaError: the coordinator rejected the request.
        ClientError: the coordinator does not answer.
    """
    found = committed(connection, group)
    return {partition: each.offset for partition, each in sorted(found.items())}


def committed(
    connection: BrokerConnection,
    group: str,
    *,
    only: Iterable[TopicPartition] | None = None,
    stable: bool = False,
) -> dict[TopicPartition, Committed]:
    """Return the group's committed offsets: of the partitions in `only`, or of all partitions if it is None.

    Partitions without a committed offset are left out.

    Args:
        stable: if True, the coordinator rejects the request while an open transaction can change one of the
            offsets (KIP-447).

    Raises:
        KafkaError: the coordinator rejected the request, for example with UNSTABLE_OFFSET_COMMIT.
        ClientError: the coordinator does not answer.
    """
    before_v8: list[OffsetFetchRequestTopic] | None = None
    since_v8: list[OffsetFetchRequestTopics] | None = None
    if only is not None:
        wanted = by_topic(only).items()
        before_v8 = [OffsetFetchRequestTopic(name=name, partition_indexes=each) for name, each in wanted]
        since_v8 = [OffsetFetchRequestTopics(name=name, partition_indexes=each) for name, each in wanted]
    request = OffsetFetchRequest(
        group_id=group,
        topics=before_v8,
        groups=[OffsetFetchRequestGroup(group_id=group, topics=since_v8)],
        require_stable=stable,
    )
    answer = connection.ask(request, max_version=_BY_NAME)
    found = answer.groups[0] if answer.groups else answer
    check(found.error_code, group)
    offsets = {}
    for partition, result in by_partition(found):
        check(result.error_code, str(partition))
        if result.committed_offset >= 0:
            offsets[partition] = Committed(result.committed_offset, result.metadata or "")
    return offsets


def offsets_of_groups(
    brokers: Brokers,
    groups: Collection[str],
    before: Mapping[str, dict[TopicPartition, int]] = MappingProxyType({}),
) -> dict[str, dict[TopicPartition, int]]:
    """Return the committed offsets of many groups, requested 100 groups at a time.

    If a group's coordinator is unknown, does not answer, or rejects the request for this group, the result
    has the group's offsets from `before`. They are empty if the group is not in `before`.
    """
    found = {group: before.get(group, {}) for group in groups}
    waiting: dict[BrokerId, list[str]] = {}
    for group, coordinator in brokers.coordinators(groups).items():
        waiting.setdefault(coordinator, []).append(group)
    while waiting:
        requests = {
            coordinator: OffsetFetchRequest(
                group_id=some[0],
                topics=None,
                groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in some[:_AT_ONCE]],
            )
            for coordinator, some in waiting.items()
        }
        left = {}
        for coordinator, response in brokers.ask_each(requests, max_version=_BY_NAME).responses.items():
            some = waiting[coordinator]
            # Before version 8 a request is about one group.
            described = {each.group_id: each for each in response.groups} or {some[0]: response}
            found |= {
                group: {
                    partition: each.committed_offset
                    for partition, each in by_partition(answer)
                    if not each.error_code and each.committed_offset >= 0
                }
                for group, answer in described.items()
                if not answer.error_code
            }
            if rest := some[len(described) :]:
                left[coordinator] = rest
        waiting = left
    return found


def commit_offsets(
    connection: BrokerConnection,
    group: str,
    offsets: Mapping[TopicPartition, int],
    metadata: Mapping[TopicPartition, str] | None = None,
) -> None:
    """Commit offsets for a group without members.

    `metadata` has the text to store with a partition's offset; it is empty for other partitions.

    Raises:
        KafkaError: the coordinator rejected the request, for example with UNKNOWN_MEMBER_ID for a group with
            members.
        ClientError: the coordinator does not answer.
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
    for partition, result in by_partition(connection.ask(request, max_version=_BY_NAME)):
        check(result.error_code, f"{group}: {partition}")


def delete_group(connection: BrokerConnection, group: str) -> None:
    """Delete a group without members, with its offsets.

    Raises:
        KafkaError: the coordinator rejected the request, for example with NON_EMPTY_GROUP or
            GROUP_ID_NOT_FOUND.
        ClientError: the coordinator does not answer.
    """
    (result,) = connection.ask(DeleteGroupsRequest(groups_names=[group])).results
    check(result.error_code, group)


def _classic_member(member: DescribedGroupMember) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        _classic_assignment(bytes(member.member_assignment)),
    )


def _classic_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Decode a member's assignment; empty if the members are not consumers, but Kafka Connect's workers."""
    try:
        (version,) = _VERSION.unpack_from(data)
        version = min(version, ConsumerProtocolAssignment.versions[1])
        found = decode(ConsumerProtocolAssignment, version, data, _VERSION.size)
    except (struct.error, ProtocolError):
        return ()
    return tuple(
        TopicPartition(each.topic, number) for each in found.assigned_partitions for number in each.partitions
    )


def _describe_consumer_group(
    connection: BrokerConnection, coordinator: BrokerId, group: str
) -> GroupDescription:
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
        _partitions(member.assignment),
        _PROTOCOLS.get(member.member_type),
        member.member_epoch,
        _partitions(member.target_assignment),
        member.subscribed_topic_regex or None,
    )


def _partitions(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )
