"""OffsetFetch v1-10: read committed offsets, of several groups at once from v8 on (KIP-709).

A null list of topics requests all offsets of a group. A partition without a committed offset is answered with
-1. Topic ids in v10 (KIP-516, KIP-848): an unknown id is refused. Offsets committed for a deleted topic are
not returned for a new topic of the same name, in any version. A member of the consumer protocol (v9, KIP-848)
is refused if its epoch is stale. A client that requires stable offsets (v7, KIP-447) gets
UNSTABLE_OFFSET_COMMIT for those that an open transaction may change.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import NO_LEADER_EPOCH, UNKNOWN_OFFSET, ZERO_TOPIC_ID, TopicId
from barnabas.broker.coordinator import GroupCoordinator, OffsetKey, OffsetStore
from barnabas.broker.metadata.image import ClusterImage
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import group_coordinator
from barnabas.broker.server.requests.needs import checked_by_handler, refusal
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from barnabas.kafka.security.acls import Access, Operation, ResourceType


@dataclass(frozen=True, slots=True)
class Ports:
    """The handler's dependencies."""

    groups: GroupCoordinator
    view: BrokerView


#: from this version there may be several groups, from the next topics are named by id
_BATCHED_FROM = 8
_TOPIC_IDS_FROM = 10
#: from this version the answer has the group's error; before, each partition has it
_GROUP_ERROR_FROM = 2


def _failed(request: OffsetFetchRequest, error: KafkaError) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=error.code,
        groups=[
            OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
            for group in request.groups
        ],
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=UNKNOWN_OFFSET, error_code=error.code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
    )


@handles(
    OffsetFetchRequest,
    needs=[checked_by_handler("group DESCRIBE and topic DESCRIBE")],
    on_error=_failed,
    pieces=[
        Pieces("groups.topics.partition_indexes", "groups.topics.partitions", size=512, unique=True),
        Pieces("topics.partition_indexes", "topics.partitions", size=512, unique=True),
    ],
    listing="groups.topics.partitions",
    confirmed_by=group_coordinator("group_id", "groups.group_id"),
)
def offset_fetch(ports: Ports, context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if context.api_version >= _BATCHED_FROM:
        by_id = context.api_version >= _TOPIC_IDS_FROM
        return OffsetFetchResponse(
            groups=[
                _fetch(ports, context.access, group, by_id, request.require_stable)
                for group in request.groups
            ]
        )
    topics = request.topics
    group = OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in topics],
    )
    found = _fetch(ports, context.access, group, by_id=False, require_stable=request.require_stable)
    return _single(found, group, context.api_version)


class _Offsets(NamedTuple):
    """A group's committed offsets, and those that the client must not use yet."""

    store: OffsetStore
    unstable: Container[OffsetKey]


def _fetch(
    ports: Ports, access: Access, group: OffsetFetchRequestGroup, by_id: bool, require_stable: bool
) -> OffsetFetchResponseGroup:
    try:
        if not access.on_group(Operation.DESCRIBE, group.group_id):
            raise refusal(ResourceType.GROUP)
        ports.groups.check_fetch(group.group_id, group.member_id, group.member_epoch)
        unstable = ports.groups.pending_offsets(group.group_id) if require_stable else ()
        offsets = _Offsets(ports.groups.offsets(group.group_id), unstable)
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
    response = OffsetFetchResponseGroup(group_id=group.group_id)
    if group.topics is None:
        response.topics = list(_everything(ports.view.image, access, offsets, group.group_id, by_id))
    else:
        response.topics = [
            _topic(ports.view.image, access, offsets, group.group_id, topic, by_id) for topic in group.topics
        ]
    return response


def _everything(
    image: ClusterImage, access: Access, offsets: _Offsets, group_id: str, by_id: bool
) -> Iterable[OffsetFetchResponseTopics]:
    for name, partitions in offsets.store.of_group(group_id).items():
        if not access.on_topic(Operation.DESCRIBE, name):
            continue
        topic = image.topics.get(name)
        if by_id and topic is None:
            continue  # deleted: it has no id
        topic_id = ZERO_TOPIC_ID if topic is None else topic.id
        found = [
            _partition(offsets, OffsetKey(group_id, name, partition), topic_id) for partition in partitions
        ]
        there = [p for p in found if p.error_code or p.committed_offset != UNKNOWN_OFFSET]
        if there:
            yield OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=there)


def _topic(
    image: ClusterImage,
    access: Access,
    offsets: _Offsets,
    group_id: str,
    wanted: OffsetFetchRequestTopics,
    by_id: bool,
) -> OffsetFetchResponseTopics:
    topic = image.topic_by_id(wanted.topic_id) if by_id else image.topics.get(wanted.name)
    response = OffsetFetchResponseTopics(name=wanted.name, topic_id=wanted.topic_id)
    if by_id and topic is None:
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
        response.partitions = [_nothing(partition, unknown) for partition in wanted.partition_indexes]
        return response
    name, topic_id = (wanted.name, ZERO_TOPIC_ID) if topic is None else (topic.name, topic.id)
    if not access.on_topic(Operation.DESCRIBE, name):
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        response.partitions = [_nothing(partition, refused) for partition in wanted.partition_indexes]
        return response
    response.partitions = [
        _partition(offsets, OffsetKey(group_id, name, partition), topic_id)
        for partition in wanted.partition_indexes
    ]
    return response


def _partition(offsets: _Offsets, key: OffsetKey, topic_id: TopicId) -> OffsetFetchResponsePartitions:
    if key in offsets.unstable:
        return _nothing(key.partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    committed = offsets.store.get(key, topic_id)
    if committed is None:
        return _nothing(key.partition, ErrorCode.NONE)
    return OffsetFetchResponsePartitions(
        partition_index=key.partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _nothing(partition: int, error: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=UNKNOWN_OFFSET,
        committed_leader_epoch=NO_LEADER_EPOCH,
        metadata="",
        error_code=error,
    )


def _single(
    answer: OffsetFetchResponseGroup, request: OffsetFetchRequestGroup, version: int
) -> OffsetFetchResponse:
    """The answer in the versions with one group."""
    topics = answer.topics
    if answer.error_code and version < _GROUP_ERROR_FROM:
        topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[_nothing(partition, answer.error_code) for partition in topic.partition_indexes],
            )
            for topic in request.topics or ()
        ]
    return OffsetFetchResponse(
        error_code=answer.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=p.partition_index,
                        committed_offset=p.committed_offset,
                        committed_leader_epoch=p.committed_leader_epoch,
                        metadata=p.metadata,
                        error_code=p.error_code,
                    )
                    for p in topic.partitions
                ],
            )
            for topic in topics
        ],
    )
