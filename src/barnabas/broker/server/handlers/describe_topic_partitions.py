"""DescribeTopicPartitions v0: topics and partitions page by page (KIP-966).

A page ends at the request's limit or ``max.request.partition.size.limit``; the cursor says where the next
begins. Topics come in the order of their names.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import INTERNAL_TOPICS
from barnabas.broker.answers import Answer, LongAnswer
from barnabas.broker.controller.names import check_topic_name
from barnabas.broker.metadata.image import ClusterImage, TopicImage
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.requests.needs import checked_by_handler
from barnabas.broker.server.responses.topics import leader_error
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from barnabas.kafka.security.acls import Operation, ResourceType


@dataclass(frozen=True, slots=True)
class Ports:
    """The handler's dependencies."""

    view: BrokerView
    long_work: LongWork


def _failed(request: DescribeTopicPartitionsRequest, error: KafkaError) -> DescribeTopicPartitionsResponse:
    topics = [
        DescribeTopicPartitionsResponseTopic(name=topic.name, error_code=error.code)
        for topic in request.topics
    ]
    return DescribeTopicPartitionsResponse(topics=topics)


@handles(
    DescribeTopicPartitionsRequest,
    needs=[checked_by_handler("topic DESCRIBE")],
    on_error=_failed,
    listing="topics.partitions",
    unconfirmed="it tells what the image shows",
)
def describe_topic_partitions(
    ports: Ports, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> Answer[DescribeTopicPartitionsResponse]:
    image = ports.view.image
    names = sorted({topic.name for topic in request.topics} or image.topics)
    if context.access.is_unrestricted:
        response = DescribeTopicPartitionsResponse()
        for _ in _fill(response, ports, context, request, image, names, frozenset()):
            pass
        return response
    return LongAnswer(_page_of_allowed(ports, context, request, image, names))


async def _page_of_allowed(
    ports: Ports,
    context: RequestContext,
    request: DescribeTopicPartitionsRequest,
    image: ClusterImage,
    names: list[str],
) -> DescribeTopicPartitionsResponse:
    may = context.access.on_topic
    refused = {name async for name in ports.long_work.slices(names) if not may(Operation.DESCRIBE, name)}
    if not request.topics:
        names = [name for name in names if name not in refused]
    response = DescribeTopicPartitionsResponse()
    async for _ in ports.long_work.slices(_fill(response, ports, context, request, image, names, refused)):
        pass
    return response


def _fill(
    response: DescribeTopicPartitionsResponse,
    ports: Ports,
    context: RequestContext,
    request: DescribeTopicPartitionsRequest,
    image: ClusterImage,
    names: list[str],
    refused: Container[str],
) -> Iterator[str]:
    """Fill one page, topic by topic: the allowed operations of a topic take some ten decisions.

    Raises:
        KafkaError: INVALID_REQUEST for a cursor that points nowhere.
    """
    first, start = _cursor(request)
    access = context.access
    room = max(1, min(request.response_partition_limit, ports.view.config.max_request_partition_size_limit))
    for name in names:
        if name < first:
            continue
        yield name
        topic = image.topics.get(name)
        if name in refused:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            response.topics.append(DescribeTopicPartitionsResponseTopic(name=name, error_code=code))
            continue
        operations = access.operations(ResourceType.TOPIC, name)
        if topic is None:
            response.topics.append(_missing(name, operations))
            continue
        begin = start if name == first else 0
        if room == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=begin)
            break
        end = min(len(topic.partitions), begin + room)
        response.topics.append(_topic(image, topic, begin, end, context.listener, operations))
        room -= max(0, end - begin)
        if end < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break


def _cursor(request: DescribeTopicPartitionsRequest) -> tuple[str, int]:
    """The topic and the partition that the page begins with."""
    cursor = request.cursor
    if cursor is None:
        return "", 0
    if cursor.partition_index < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.topics and cursor.topic_name not in {topic.name for topic in request.topics}:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return cursor.topic_name, cursor.partition_index


def _missing(name: str, operations: int) -> DescribeTopicPartitionsResponseTopic:
    try:
        check_topic_name(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except KafkaError as error:
        code = error.code
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        error_code=code,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=operations,
    )


def _topic(
    image: ClusterImage, topic: TopicImage, begin: int, end: int, listener: str, operations: int
) -> DescribeTopicPartitionsResponseTopic:
    partitions = [
        DescribeTopicPartitionsResponsePartition(
            error_code=leader_error(image, topic.partitions[number], listener),
            partition_index=number,
            leader_id=topic.partitions[number].leader,
            leader_epoch=topic.partitions[number].leader_epoch,
            replica_nodes=list(topic.partitions[number].replicas),
            isr_nodes=list(topic.partitions[number].isr),
            eligible_leader_replicas=list(topic.partitions[number].elr),
            last_known_elr=list(topic.partitions[number].last_known_elr),
            offline_replicas=[r for r in topic.partitions[number].replicas if r not in image.brokers],
        )
        for number in range(begin, end)
    ]
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=operations,
    )
