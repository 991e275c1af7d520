"""OffsetCommit v2-10: store a group's offsets, with metadata and leader epoch (KIP-320).

Retention chosen by the client up to v4 (KIP-211), static members (KIP-345), topic ids in v10 (KIP-516, 848).
Offsets of topics and partitions that do not exist are refused, one by one.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.answers import Answer, is_pending
from barnabas.broker.coordinator import GroupCoordinator
from barnabas.broker.metadata.image import ClusterImage, TopicImage
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import group_coordinator
from barnabas.broker.server.requests.needs import Group, each_topic
from barnabas.broker.server.requests.new_names import NewGroups
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.kafka.security.acls import Operation


@dataclass(frozen=True, slots=True)
class Ports:
    """The handler's dependencies."""

    groups: GroupCoordinator
    view: BrokerView


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
    ports: Ports, context: RequestContext, request: OffsetCommitRequest
) -> Answer[OffsetCommitResponse]:
    by_id = context.api_version >= _TOPIC_IDS_FROM
    wanted, request.topics = request.topics, []
    refused: list[OffsetCommitResponseTopic] = []
    for topic in wanted:
        _sort(ports.view.image, topic, by_id, request.topics, refused)
    if not request.topics:
        return OffsetCommitResponse(topics=refused)
    try:
        answer = ports.groups.commit(request, context.api_version)
    except KafkaError as error:
        answer = _failed(request, error)
    if is_pending(answer):
        return _merge_later(answer, request, refused)
    return _merge(answer, refused)


def _sort(
    image: ClusterImage,
    topic: OffsetCommitRequestTopic,
    by_id: bool,
    accepted: list[OffsetCommitRequestTopic],
    refused: list[OffsetCommitResponseTopic],
) -> None:
    """Put a topic's partitions with those to commit, named and identified, or with those refused."""
    known = image.topic_by_id(topic.topic_id) if by_id else image.topics.get(topic.name)
    if known is None:
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        refused.append(_refusal(topic, unknown))
        return
    there = [p for p in topic.partitions if _exists(known, p)]
    if there:
        accepted.append(OffsetCommitRequestTopic(name=known.name, topic_id=known.id, partitions=there))
    if len(there) < len(topic.partitions):
        topic.partitions = [p for p in topic.partitions if not _exists(known, p)]
        refused.append(_refusal(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))


def _exists(topic: TopicImage, partition: OffsetCommitRequestPartition) -> bool:
    return 0 <= partition.partition_index < len(topic.partitions)


def _refusal(topic: OffsetCommitRequestTopic, error: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
            for partition in topic.partitions
        ],
    )


async def _merge_later(
    answer: Awaitable[OffsetCommitResponse],
    request: OffsetCommitRequest,
    refused: list[OffsetCommitResponseTopic],
) -> OffsetCommitResponse:
    try:
        return _merge(await answer, refused)
    except KafkaError as error:
        return _merge(_failed(request, error), refused)


def _merge(response: OffsetCommitResponse, refused: list[OffsetCommitResponseTopic]) -> OffsetCommitResponse:
    for topic in refused:
        same = next(
            (t for t in response.topics if (t.name and t.name == topic.name) or t.topic_id == topic.topic_id),
            None,
        )
        if same is None:
            response.topics.append(topic)
        else:
            same.partitions.extend(topic.partitions)
    return response
