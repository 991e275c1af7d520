"""DescribeTopicPartitions v0: returns topics and partitions in pages (KIP-966).

A page ends at the request's limit or ``max.request.partition.size.limit``. The cursor is the start of the
next page. Topics are in the order of their names.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import INTERNAL_TOPICS
from barnabas.broker.awaitables import LongResponse, MaybeAwaitable
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
    view: BrokerView, long_work: LongWork, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> MaybeAwaitable[DescribeTopicPartitionsResponse]:
    image, response = view.image, DescribeTopicPartitionsResponse()
    first, start = _cursor(request)
    names = [
        name for name in sorted({topic.name for topic in request.topics} or image.topics) if name >= first
    ]
    max_partitions = max(
        1, min(request.response_partition_limit, view.config.max_request_partition_size_limit)
    )
    if context.access.is_unrestricted:
        for _ in _fill(response, image, context, names, start if names[:1] == [first] else 0, max_partitions):
            pass
        return response

    async def answer() -> DescribeTopicPartitionsResponse:
        shown: list[str] = []
        refused: list[str] = []
        async for name in long_work.slices(names):
            (shown if context.access.on_topic(Operation.DESCRIBE, name) else refused).append(name)
        begin = start if shown[:1] == [first] else 0
        async for _ in long_work.slices(_fill(response, image, context, shown, begin, max_partitions)):
            pass
        if request.topics:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            response.topics += [
                DescribeTopicPartitionsResponseTopic(name=name, error_code=code) for name in refused
            ]
        return response

    return LongResponse(answer())


def _fill(
    response: DescribeTopicPartitionsResponse,
    image: ClusterImage,
    context: RequestContext,
    names: list[str],
    start: int,
    room: int,
) -> Iterator[str]:
    """Add the topics of one page to `response`. Before each topic, yield its name.

    The caller can let the event loop serve requests at each yield. If the page does not contain all
    partitions, set `response.next_cursor` to the next partition.

    Args:
        response: the response to fill.
        image: image of the metadata with the topics.
        context: context of the request, with the listener and the permissions of the client.
        names: names of the page's first topic and of the topics after it, sorted.
        start: first partition of the first topic.
        room: largest number of partitions in the page.
    """
    begin = start
    for name in names:
        yield name
        if room == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        operations = context.access.operations(ResourceType.TOPIC, name)
        topic = image.topics.get(name)
        if topic is None:
            response.topics.append(_missing(name, operations))
        else:
            end = min(len(topic.partitions), begin + room)
            response.topics.append(_topic(image, topic, begin, end, context.listener, operations))
            room -= max(0, end - begin)
            if end < len(topic.partitions):
                response.next_cursor = Cursor(topic_name=name, partition_index=end)
                break
        begin = 0


def _cursor(request: DescribeTopicPartitionsRequest) -> tuple[str, int]:
    """Return the name of the page's first topic, and its first partition; ("", 0) without a cursor.

    Raises:
        KafkaError: INVALID_REQUEST, the cursor has a negative partition; or the request names topics, and the
            cursor's topic is none of them.
    """
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
            error_code=leader_error(image, state, listener),
            partition_index=number,
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=list(state.replicas),
            isr_nodes=list(state.isr),
            eligible_leader_replicas=list(state.elr),
            last_known_elr=list(state.last_known_elr),
            offline_replicas=[r for r in state.replicas if r not in image.brokers],
        )
        for number, state in enumerate(topic.partitions[begin:end], begin)
    ]
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=operations,
    )
