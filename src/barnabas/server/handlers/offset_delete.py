"""OffsetDelete v0: delete committed offsets of topics that nobody in the group subscribes to (KIP-496)."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from barnabas.coordinator import OffsetKey
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas.server.handlers import handles
from barnabas.server.requests.answers import mapped
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.pieces import Pieces
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from barnabas.server.broker import Broker


@handles(OffsetDeleteRequest, pieces=[Pieces("topics.partitions", size=512)])
def offset_delete(
    broker: Broker, _context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
    keys = [
        OffsetKey(request.group_id, topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
        if broker.image.partition(TopicPartition(topic.name, partition.partition_index)) is not None
    ]
    return mapped(broker.groups.delete_offsets(request.group_id, keys), partial(_response, request))


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
