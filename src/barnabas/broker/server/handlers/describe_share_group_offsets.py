"""DescribeShareGroupOffsets v0-1: returns start offsets (KIP-932) and, from v1 on, the lag (KIP-1226).

A null list of topics requests all partitions in which the group has a state. A partition without a start
offset gets -1. If the group does not exist, all partitions get -1, as in Apache Kafka.

The lag is the number of records from the start offset to the high watermark that are not finished yet. It is
-1 if the number of finished records or the high watermark is unknown. The number is unknown until the
group has a start offset: AlterShareGroupOffsets sets it, or the partition's leader stores it.

Retention or DeleteRecords can delete records after the group's stored start offset. The partition's leader
stores a new start offset only with the next change of the group's state. Until then, this broker does not
count the deleted records: the lag is at most the number of records from the log start offset on. Apache Kafka
counts them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import NO_LEADER_EPOCH, UNKNOWN_OFFSET, Offset, TopicPartition
from barnabas.broker.coordinator import GroupCoordinator, ShareGroup
from barnabas.broker.coordinator.share_state.persister import SharePartitionKey, ShareState
from barnabas.broker.interbroker import BrokerClient
from barnabas.broker.metadata.features import SHARE_VERSION
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.server.monitoring.log_ends import ask_ends, ask_starts
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import group_coordinator
from barnabas.broker.server.requests.needs import checked_by_handler, each_group
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from barnabas.kafka.security.acls import Access, Operation

_LAG_FROM = 1
_UNKNOWN_LAG = -1


class Bounds(NamedTuple):
    """The log start offset and the high watermark of a partition."""

    start: Offset
    end: Offset


@dataclass(slots=True)
class Ports:
    """The parts of the broker that this module's handler uses."""

    groups: GroupCoordinator
    view: BrokerView
    replicas: ReplicaManager
    peers: BrokerClient


def _failed(
    request: DescribeShareGroupOffsetsRequest, error: KafkaError
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        groups=[
            DescribeShareGroupOffsetsResponseGroup(
                group_id=group.group_id, error_code=error.code, error_message=error.message
            )
            for group in request.groups
        ]
    )


@handles(
    DescribeShareGroupOffsetsRequest,
    needs=[
        each_group(Operation.DESCRIBE, "groups", name="group_id"),
        checked_by_handler("topic DESCRIBE"),
    ],
    on_error=_failed,
    cancel_on_disconnect=True,
    pieces=[Pieces("groups.topics.partitions", size=512, unique=True)],
    is_heavy=True,
    listing="groups.topics.partitions",
    confirmed_by=group_coordinator("groups.group_id"),
    feature=SHARE_VERSION,
)
async def describe_share_group_offsets(
    ports: Ports, context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    has_lag = context.api_version >= _LAG_FROM
    return DescribeShareGroupOffsetsResponse(
        groups=[await _describe(ports, context.access, group, has_lag) for group in request.groups]
    )


async def _describe(
    ports: Ports, access: Access, wanted: DescribeShareGroupOffsetsRequestGroup, has_lag: bool
) -> DescribeShareGroupOffsetsResponseGroup:
    group_id = wanted.group_id
    try:
        group = _share_group(ports.groups, group_id)
    except KafkaError as error:
        return DescribeShareGroupOffsetsResponseGroup(
            group_id=group_id, error_code=error.code, error_message=error.message
        )
    names = (
        _all_topics(group, access)
        if wanted.topics is None
        else {topic.topic_name: topic.partitions for topic in wanted.topics}
    )
    topics = ports.view.image.topics
    keys = {
        TopicPartition(name, partition): SharePartitionKey(group_id, topics[name].id, partition)
        for name, partitions in names.items()
        if name in topics and access.on_topic(Operation.DESCRIBE, name)
        for partition in partitions
        if 0 <= partition < len(topics[name].partitions)
    }
    found = await ports.groups.share_groups.summaries(keys.values()) if group is not None else {}
    states = {partition: found.get(key, ShareState()) for partition, key in keys.items()}
    bounds = await _bounds(ports, states) if has_lag else {}

    def describe(name: str, partitions: Iterable[int]) -> DescribeShareGroupOffsetsResponseTopic:
        topic = topics.get(name)
        answer = DescribeShareGroupOffsetsResponseTopic(topic_name=name)
        if not access.on_topic(Operation.DESCRIBE, name):
            failure = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        else:
            failure = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer.topic_id = answer.topic_id if topic is None else topic.id
        for index in partitions:
            partition = TopicPartition(name, index)
            state = states.get(partition, KafkaError(failure))
            answer.partitions.append(described(index, state, bounds.get(partition)))
        return answer

    return DescribeShareGroupOffsetsResponseGroup(
        group_id=group_id, topics=[describe(name, partitions) for name, partitions in names.items()]
    )


def _share_group(groups: GroupCoordinator, group_id: str) -> ShareGroup | None:
    """Return the share group with this id; None if there is none.

    Raises:
        KafkaError: this broker does not coordinate the group, or has not loaded it yet.
    """
    try:
        group = groups.group(group_id)
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return None
    return group if isinstance(group, ShareGroup) else None


def _all_topics(group: ShareGroup | None, access: Access) -> Mapping[str, Collection[int]]:
    """Return the partitions in which the group has an initialized state, as sorted numbers by topic name.

    Leave out topics that the client may not describe. The result is empty if `group` is None.
    """
    return {
        topic.name: sorted(topic.partitions)
        for topic in (group.partitions.initialized.values() if group is not None else ())
        if access.on_topic(Operation.DESCRIBE, topic.name)
    }


async def _bounds(
    ports: Ports, states: Mapping[TopicPartition, ShareState | KafkaError]
) -> dict[TopicPartition, Bounds]:
    """Return the log start offset and the high watermark of partitions, by partition.

    Leave out a partition if its value in `states` is an error, or is a state without a start offset. If this
    broker does not lead a partition, ask the partition's leader. Leave out the partition if the leader does
    not return both offsets.
    """
    bounds: dict[TopicPartition, Bounds] = {}
    unknown = []
    for partition, state in states.items():
        if isinstance(state, ShareState) and state.start_offset != UNKNOWN_OFFSET:
            known = _known_bounds(ports.replicas, partition)
            if known is None:
                unknown.append(partition)
            else:
                bounds[partition] = known
    if unknown:
        image = ports.view.image
        starts, ends = await asyncio.gather(
            ask_starts(ports.peers, image, unknown), ask_ends(ports.peers, image, unknown)
        )
        bounds |= {
            partition: Bounds(starts[partition], end)
            for partition, end in ends.items()
            if partition in starts
        }
    return bounds


def _known_bounds(replicas: ReplicaManager, partition: TopicPartition) -> Bounds | None:
    """Return the bounds of a partition; None if this broker does not lead it."""
    try:
        found = replicas.find(*partition)
    except KafkaError:
        return None
    return Bounds(found.log.log_start_offset, found.log.high_watermark) if found.is_leader else None


def described(
    index: int, state: ShareState | KafkaError, bounds: Bounds | None
) -> DescribeShareGroupOffsetsResponsePartition:
    """Return the part of the response about one partition.

    The lag is -1 if the bounds or the number of finished records are unknown.

    Args:
        index: the partition's number.
        state: the group's state in the partition, or the error of reading it.
        bounds: the partition's bounds; None if they are unknown.
    """
    if isinstance(state, KafkaError):
        return DescribeShareGroupOffsetsResponsePartition(
            partition_index=index,
            start_offset=UNKNOWN_OFFSET,
            leader_epoch=NO_LEADER_EPOCH,
            error_code=state.code,
            error_message=state.message,
        )
    finished = state.delivery_complete_count
    lag = _UNKNOWN_LAG
    if bounds is not None and finished >= 0:
        unfinished = bounds.end - state.start_offset - finished
        lag = max(0, min(unfinished, bounds.end - bounds.start))
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=index, start_offset=state.start_offset, leader_epoch=state.leader_epoch, lag=lag
    )
