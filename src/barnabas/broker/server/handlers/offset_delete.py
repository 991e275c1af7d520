"""OffsetDelete v0: deletes a group's offsets of topics to which no member subscribes (KIP-496)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.awaitables import MaybeAwaitable, then
from barnabas.broker.coordinator import GroupCoordinator, OffsetKey
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import group_coordinator
from barnabas.broker.server.requests.needs import Group, each_topic
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas.kafka.security.acls import Operation


def _failed(request: OffsetDeleteRequest, error: KafkaError) -> OffsetDeleteResponse:
    if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return OffsetDeleteResponse(error_code=error.code)
    topics = [
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(
                    partition_index=partition.partition_index, error_code=error.code
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return OffsetDeleteResponse(topics=topics)


@handles(
    OffsetDeleteRequest,
    needs=[Group(Operation.DELETE), each_topic(Operation.READ, "topics")],
    on_error=_failed,
    pieces=[Pieces("topics.partitions", size=512)],
    confirmed_by=group_coordinator(),
    is_audited=True,
)
def offset_delete(
    groups: GroupCoordinator, view: BrokerView, _context: RequestContext, request: OffsetDeleteRequest
) -> MaybeAwaitable[OffsetDeleteResponse]:
    keys = [
        OffsetKey(request.group_id, topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
        if view.image.partition(TopicPartition(topic.name, partition.partition_index)) is not None
    ]
    return then(groups.delete_offsets(request.group_id, keys), partial(_response, request))


def _response(request: OffsetDeleteRequest, outcome: Mapping[OffsetKey, ErrorCode]) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=outcome.get(
                            OffsetKey(request.group_id, topic.name, partition.partition_index),
                            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        ),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
