"""OffsetCommit v2-10: stores a group's offsets, with metadata and leader epoch (KIP-320).

Up to v4 the client can choose the retention (KIP-211). Static members (KIP-345) and, in v10, topic ids
(KIP-516, KIP-848) are supported. The broker rejects the offset of each topic or partition that does not
exist, and stores the others.
"""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.awaitables import MaybeAwaitable, resolve
from barnabas.broker.coordinator import GroupCoordinator
from barnabas.broker.metadata.image import ClusterImage
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import group_coordinator
from barnabas.broker.server.requests.needs import Group, each_topic
from barnabas.broker.server.requests.new_names import NewGroups
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.kafka.security.acls import Operation

_TOPIC_IDS_FROM = 10


def _failed(request: OffsetCommitRequest, error: KafkaError) -> OffsetCommitResponse:
    return OffsetCommitResponse(topics=[_refusal(topic, error.code) for topic in request.topics])


@handles(
    OffsetCommitRequest,
    needs=[Group(Operation.READ), each_topic(Operation.READ, "topics")],
    on_error=_failed,
    pieces=[Pieces("topics.partitions", size=512)],
    confirmed_by=group_coordinator(),
    new_names=NewGroups,
)
def offset_commit(
    groups: GroupCoordinator, view: BrokerView, context: RequestContext, request: OffsetCommitRequest
) -> MaybeAwaitable[OffsetCommitResponse]:
    refused = _take_unknown(view.image, request, context.api_version >= _TOPIC_IDS_FROM)
    if refused:
        return _commit_known(groups, context.api_version, request, refused)
    return groups.commit(request, context.api_version)


def _take_unknown(
    image: ClusterImage, request: OffsetCommitRequest, by_id: bool
) -> list[OffsetCommitResponseTopic]:
    """Remove unknown topics and partitions from a request, and return results with errors for them.

    The error is UNKNOWN_TOPIC_OR_PARTITION, or UNKNOWN_TOPIC_ID for a topic with an unknown id. In the topics
    that are left in the request, set the missing name or id.

    Args:
        image: cluster image with the topics.
        request: the request, which this function changes.
        by_id: whether the request names topics by their ids.
    """
    accepted: list[OffsetCommitRequestTopic] = []
    refused: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        known = image.topic_by_id(topic.topic_id) if by_id else image.topics.get(topic.name)
        if known is None:
            unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused.append(_refusal(topic, unknown))
            continue
        count = len(known.partitions)
        partitions = [p for p in topic.partitions if 0 <= p.partition_index < count]
        if len(partitions) < len(topic.partitions):
            topic.partitions = [p for p in topic.partitions if not 0 <= p.partition_index < count]
            refused.append(_refusal(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        topic.name, topic.topic_id, topic.partitions = known.name, known.id, partitions
        if partitions:
            accepted.append(topic)
    request.topics = accepted
    return refused


async def _commit_known(
    groups: GroupCoordinator,
    version: int,
    request: OffsetCommitRequest,
    refused: list[OffsetCommitResponseTopic],
) -> OffsetCommitResponse:
    response = OffsetCommitResponse()
    if request.topics:
        try:
            response = await resolve(groups.commit(request, version))
        except KafkaError as error:
            response = _failed(request, error)
    for topic in refused:
        for same in response.topics:
            if (same.name and same.name == topic.name) or same.topic_id == topic.topic_id:
                same.partitions += topic.partitions
                break
        else:
            response.topics.append(topic)
    return response


def _refusal(topic: OffsetCommitRequestTopic, error: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
            for partition in topic.partitions
        ],
    )
