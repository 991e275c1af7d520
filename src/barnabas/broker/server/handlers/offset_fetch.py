"""OffsetFetch v1-10: returns committed offsets; from v8 on of several groups at once (KIP-709).

A null list of topics requests all offsets of a group. A partition without a committed offset gets -1. v10 has
topic ids (KIP-516, KIP-848), and the broker rejects an unknown id. In all versions, offsets of a deleted
topic are not returned for a new topic of the same name. A member of the consumer protocol (v9, KIP-848) with
a stale epoch is rejected. A client can require stable offsets (v7, KIP-447). Then it gets
UNSTABLE_OFFSET_COMMIT for offsets that an open transaction can change.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import NO_LEADER_EPOCH, UNKNOWN_OFFSET, ZERO_TOPIC_ID, TopicId
from barnabas.broker.coordinator import GroupCoordinator, OffsetKey
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
def offset_fetch(
    groups: GroupCoordinator, view: BrokerView, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    by_id = context.api_version >= _TOPIC_IDS_FROM

    def fetch(group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        try:
            offsets = _Offsets(groups, view.image, context.access, group, by_id, request.require_stable)
        except KafkaError as error:
            return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
        topics = offsets.all() if group.topics is None else map(offsets.of_topic, group.topics)
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=list(topics))

    if context.api_version >= _BATCHED_FROM:
        return OffsetFetchResponse(groups=[fetch(group) for group in request.groups])
    topics = request.topics
    group = OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in topics],
    )
    return _single(fetch(group), group, context.api_version)


class _Offsets:
    """The committed offsets of a group, as far as one client may read them.

    Raises:
        KafkaError: the client may not describe the group, or is not a valid member of it.
    """

    def __init__(
        self,
        groups: GroupCoordinator,
        image: ClusterImage,
        access: Access,
        group: OffsetFetchRequestGroup,
        by_id: bool,
        require_stable: bool,
    ) -> None:
        group_id = self._group_id = group.group_id
        if not access.on_group(Operation.DESCRIBE, group_id):
            raise refusal(ResourceType.GROUP)
        groups.check_fetch(group_id, group.member_id, group.member_epoch)
        self._image, self._access, self._by_id = image, access, by_id
        self._store = groups.offsets(group_id)
        #: the offsets that an ongoing transaction may change
        self._unstable: Container[OffsetKey] = groups.pending_offsets(group_id) if require_stable else ()

    def all(self) -> Iterator[OffsetFetchResponseTopics]:
        for name, partitions in self._store.of_group(self._group_id).items():
            topic = self._image.topics.get(name)
            if not self._access.on_topic(Operation.DESCRIBE, name) or (self._by_id and topic is None):
                continue  # a deleted topic has no id
            topic_id = ZERO_TOPIC_ID if topic is None else topic.id
            found = [self._partition(name, topic_id, partition) for partition in partitions]
            there = [p for p in found if p.error_code or p.committed_offset != UNKNOWN_OFFSET]
            if there:
                yield OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=there)

    def of_topic(self, wanted: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
        image, indexes = self._image, wanted.partition_indexes
        topic = image.topic_by_id(wanted.topic_id) if self._by_id else image.topics.get(wanted.name)
        name, topic_id = (wanted.name, ZERO_TOPIC_ID) if topic is None else (topic.name, topic.id)
        if self._by_id and topic is None:
            partitions = [_nothing(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in indexes]
        elif not self._access.on_topic(Operation.DESCRIBE, name):
            partitions = [_nothing(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for index in indexes]
        else:
            partitions = [self._partition(name, topic_id, index) for index in indexes]
        return OffsetFetchResponseTopics(name=wanted.name, topic_id=wanted.topic_id, partitions=partitions)

    def _partition(self, topic: str, topic_id: TopicId, index: int) -> OffsetFetchResponsePartitions:
        key = OffsetKey(self._group_id, topic, index)
        if key in self._unstable:
            return _nothing(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        committed = self._store.get(key, topic_id)
        if committed is None:
            return _nothing(index, ErrorCode.NONE)
        return OffsetFetchResponsePartitions(
            partition_index=index,
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
    """Convert the result of one group to a response of the versions that can request only one group.

    Before version `_GROUP_ERROR_FROM`, each requested partition gets the error of the group.

    Args:
        answer: result of the group.
        request: the request for the group.
        version: version of the request and the response.
    """
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
