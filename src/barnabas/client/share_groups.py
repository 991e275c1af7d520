"""Requests about share groups (KIP-932): members, and share-partition start offsets with their lag."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.base.types import BrokerId, TopicPartition
from barnabas.client.admin_types import GroupDescription, GroupMember
from barnabas.client.brokers import Brokers, check
from barnabas.client.connection import BrokerConnection, UnservedError
from barnabas.client.leaders import LeaderRequests, by_topic, leaders_of
from barnabas.kafka.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from barnabas.kafka.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from barnabas.kafka.protocol.messages.describe_share_partitions import (
    DescribeSharePartitionsRequest,
    PartitionRequest,
    TopicRequest,
)
from barnabas.kafka.protocol.messages.describe_share_partitions import StateBatch as PartitionBatch
from barnabas.kafka.protocol.messages.share_group_describe import Member, ShareGroupDescribeRequest

#: seconds that the leaders have for their answers
_TIMEOUT_S = 10.0

#: delivery states by their numbers in the protocol
_STATES = {0: "available", 1: "acquired", 2: "acknowledged", 3: "archiving", 4: "archived"}


class StateBatch(NamedTuple):
    """Consecutive records of a share partition with the same delivery state.

    Attributes:
        first: offset of the first record.
        last: offset of the last record.
        state: available, acquired, acknowledged, archived; archiving until the dead letter is written.
        deliveries: number of deliveries of each record. For acquired records, it includes the present
            delivery.
        member: id of the member that has acquired the records; None in other states.
        lock_ms: milliseconds until the member's lock ends; None in other states.
    """

    first: int
    last: int
    state: str
    deliveries: int
    member: str | None
    lock_ms: int | None

    @property
    def size(self) -> int:
        return self.last - self.first + 1


class InFlight(NamedTuple):
    """The records in flight of a share partition, from its start offset to its end offset."""

    start: int
    end: int
    batches: tuple[StateBatch, ...]

    def followed_by(self, page: InFlight) -> InFlight:
        """Return the records in flight of this page and of the partition's next `page`, as one object."""
        return InFlight(self.start, page.end, self.batches + page.batches)

    def count(self, state: str) -> int:
        """Return the number of records in flight with a delivery state."""
        return sum(each.size for each in self.batches if each.state == state)

    @property
    def waiting_again(self) -> tuple[StateBatch, ...]:
        """The available records that were delivered before."""
        return tuple(each for each in self.batches if each.state == "available" and each.deliveries)


class ShareOffset(NamedTuple):
    """A share group's start offset and lag in a partition.

    Attributes:
        start: the share-partition start offset: all records before it are acknowledged or archived. None
            before the partition's leader has chosen this offset.
        lag: number of records that are neither acknowledged nor archived; None if the coordinator does not
            know this number.
    """

    start: int | None
    lag: int | None


def describe_group(connection: BrokerConnection, coordinator: BrokerId, group: str) -> GroupDescription:
    """Return the description of a share group.

    Raises:
        KafkaError: the coordinator rejects the request, for example with GROUP_ID_NOT_FOUND.
        UnservedError: the cluster does not support share groups.
        ClientError: the coordinator does not answer.
    """
    (found,) = connection.ask(ShareGroupDescribeRequest(group_ids=[group])).groups
    check(found.error_code, group, found.error_message)
    return GroupDescription(
        group,
        found.group_state,
        found.assignor_name,
        coordinator,
        tuple(map(_member, found.members)),
        "share",
        found.group_epoch,
        found.assignment_epoch,
    )


def start_offsets(connection: BrokerConnection, group: str) -> dict[TopicPartition, ShareOffset]:
    """Return the group's start offset and lag in each partition for which the group has a state.

    Raises:
        KafkaError: the coordinator rejects the request.
        ClientError: the coordinator does not answer.
    """
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)]
    )
    (found,) = connection.ask(request).groups
    check(found.error_code, group, found.error_message)
    offsets = {}
    for topic in found.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.topic_name, each.partition_index)
            check(each.error_code, str(partition), each.error_message)
            offsets[partition] = ShareOffset(_known(each.start_offset), _known(each.lag))
    return dict(sorted(offsets.items()))


def records_in_flight(
    brokers: Brokers, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, InFlight] | None:
    """Return the records in flight of a share group's partitions, as their leaders know them.

    Partitions that no member uses, or whose leader does not answer, are not in the result.

    Returns:
        None if the brokers do not serve the request: it exists in Barnabas only.

    Raises:
        ClientError: no broker answers.
    """
    wanted = list(partitions)
    deadline = time.monotonic() + _TIMEOUT_S
    metadata = brokers.metadata(sorted({partition.topic for partition in wanted}), deadline)
    return in_flight(brokers, group, wanted, leaders_of(metadata.topics), deadline)


def in_flight(
    brokers: Brokers,
    group: str,
    partitions: Iterable[TopicPartition],
    leaders: Mapping[TopicPartition, BrokerId],
    deadline: float | None = None,
) -> dict[TopicPartition, InFlight] | None:
    """Request the records in flight of partitions from their leaders. Return them by partition.

    Partitions that no member uses, or whose leader does not answer, are not in the result. If there are many
    records, each leader is asked several times, for one page of its answer at a time.

    Args:
        leaders: the leader of each existing partition; `NO_BROKER` for a partition without a leader.
        deadline: end of the wait for all pages, as a value of ``time.monotonic()``. None: for each page, the
            timeout of `brokers`.

    Returns:
        None if the leaders do not serve the request.

    Raises:
        AuthenticationError: the login failed.
    """
    # by partition that is not described to its end: the offset at which its next page begins
    rest = dict.fromkeys(partitions, 0)
    found: dict[TopicPartition, InFlight] = {}

    def request_of(asked: Sequence[TopicPartition]) -> DescribeSharePartitionsRequest:
        topics = [
            TopicRequest(
                name=name,
                partitions=[
                    PartitionRequest(partition_index=number, first_offset=rest[TopicPartition(name, number)])
                    for number in numbers
                ],
            )
            for name, numbers in by_topic(asked).items()
        ]
        return DescribeSharePartitionsRequest(group_id=group, topics=topics)

    while rest:
        answers = LeaderRequests(brokers, rest, leaders, request_of).ask(deadline=deadline)
        for partition in (*answers.error_codes, *answers.unanswered):
            rest.pop(partition, None)
            found.pop(partition, None)
        for partition, each in answers.results.items():
            if each.start_offset >= 0:
                batches = tuple(map(_state_batch, each.state_batches))
                page = InFlight(each.start_offset, each.end_offset, batches)
                before = found.get(partition)
                found[partition] = page if before is None else before.followed_by(page)
            if each.next_offset >= 0:
                rest[partition] = each.next_offset
            else:
                rest.pop(partition, None)
        if not answers.results:
            is_unserved = any(isinstance(error, UnservedError) for error in answers.unanswered.values())
            return None if is_unserved and not found else found
    return found


def set_start_offsets(
    connection: BrokerConnection, group: str, offsets: Mapping[TopicPartition, int]
) -> None:
    """Set the start offsets of a group without members.

    Raises:
        KafkaError: the coordinator rejects the request, for example with NON_EMPTY_GROUP.
        ClientError: the coordinator does not answer.
    """
    topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
    for partition, offset in offsets.items():
        topics.setdefault(partition.topic, []).append(
            AlterShareGroupOffsetsRequestPartition(partition_index=partition.partition, start_offset=offset)
        )
    request = AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=each)
            for name, each in topics.items()
        ],
    )
    answer = connection.ask(request)
    check(answer.error_code, group, answer.error_message)
    for topic in answer.responses:
        for each in topic.partitions:
            partition = TopicPartition(topic.topic_name, each.partition_index)
            check(each.error_code, f"{group}: {partition}", each.error_message)


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _state_batch(batch: PartitionBatch) -> StateBatch:
    return StateBatch(
        batch.first_offset,
        batch.last_offset,
        _STATES[batch.delivery_state],
        batch.delivery_count,
        batch.member_id or None,
        _known(batch.lock_timeout_ms),
    )


def _member(member: Member) -> GroupMember:
    return GroupMember(
        member.member_id,
        None,
        member.client_id,
        member.client_host,
        tuple(
            TopicPartition(topic.topic_name, partition)
            for topic in member.assignment.topic_partitions
            for partition in topic.partitions
        ),
        "share",
        member.member_epoch,
    )
