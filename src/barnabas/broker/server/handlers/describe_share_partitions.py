"""DescribeSharePartitions v1: returns a share group's records in flight in partitions that this broker leads.

For each range of offsets from the start offset to the end offset, the response has the delivery state and the
delivery count. Acquired records also have their member, and the time that is left of the member's lock.

A response has at most 2,000 ranges, or fewer if the request says so. If a partition has more ranges, its
result has a `next_offset`, and the response leaves out the partitions after it. The client requests the rest
with another request. So a client that reads several pages can miss changes of the ranges described first.

This API is Barnabas' own: only the leader knows the locks, and no API of Apache Kafka returns them.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.awaitables import LongResponse, MaybeAwaitable
from barnabas.broker.metadata.features import SHARE_VERSION
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.long_work import LISTED_AT_ONCE
from barnabas.broker.server.requests.needs import Group, checked_by_handler
from barnabas.broker.server.share_requests import SharePorts
from barnabas.broker.sharing.in_flight import ACQUIRED
from barnabas.broker.sharing.share_partition import SharePartition
from barnabas.broker.sharing.share_partitions import SharePartitions
from barnabas.kafka.protocol.messages.describe_share_partitions import (
    DescribeSharePartitionsRequest,
    DescribeSharePartitionsResponse,
    PartitionResponse,
    StateBatch,
    TopicResponse,
)
from barnabas.kafka.protocol.wire import MAX_ELEMENTS
from barnabas.kafka.security.acls import Operation

#: the largest number of ranges in a response
MAX_RANGES = 2000


def _failed(request: DescribeSharePartitionsRequest, error: KafkaError) -> DescribeSharePartitionsResponse:
    topics = [
        TopicResponse(
            name=topic.name, partitions=[_failure(each.partition_index, error) for each in topic.partitions]
        )
        for topic in request.topics
    ]
    return DescribeSharePartitionsResponse(topics=topics)


def _failure(index: int, error: KafkaError) -> PartitionResponse:
    return PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)


@handles(
    DescribeSharePartitionsRequest,
    needs=[Group(Operation.DESCRIBE), checked_by_handler("topic DESCRIBE")],
    on_error=_failed,
    max_elements=MAX_ELEMENTS,
    listing="topics.partitions.state_batches",
    unconfirmed="it only informs",
    feature=SHARE_VERSION,
)
def describe_share_partitions(
    ports: SharePorts, context: RequestContext, request: DescribeSharePartitionsRequest
) -> MaybeAwaitable[DescribeSharePartitionsResponse]:
    response = DescribeSharePartitionsResponse()
    steps = _steps(ports.partitions, context, request, response)
    for _ in steps:
        return LongResponse(_in_slices(ports, steps, response))
    return response


async def _in_slices(
    ports: SharePorts, steps: Iterator[None], response: DescribeSharePartitionsResponse
) -> DescribeSharePartitionsResponse:
    await ports.long_work.finish(steps)
    return response


def _steps(
    share_partitions: SharePartitions,
    context: RequestContext,
    request: DescribeSharePartitionsRequest,
    response: DescribeSharePartitionsResponse,
) -> Iterator[None]:
    """Fill in the response up to its limit. Yield after every `LISTED_AT_ONCE` topics, partitions and ranges.

    Args:
        share_partitions: the share partitions that this broker leads.
        context: context of the request.
        request: the request.
        response: the response to fill.
    """
    done = 0
    for count in _filled(share_partitions, context, request, response):
        done += count
        if done >= LISTED_AT_ONCE:
            done = 0
            yield


def _filled(
    share_partitions: SharePartitions,
    context: RequestContext,
    request: DescribeSharePartitionsRequest,
    response: DescribeSharePartitionsResponse,
) -> Iterator[int]:
    """Fill in the response up to its limit. Leave out the partitions that the request repeats.

    Yield 1 for each topic and for each partition, and then the numbers of the partition's ranges, at most
    `LISTED_AT_ONCE` at a time. The caller can let the event loop serve requests at each yield.
    """
    room = max(1, min(request.response_range_limit, MAX_RANGES))
    seen = set()
    for topic in request.topics:
        yield 1
        is_refused = not context.access.on_topic(Operation.DESCRIBE, topic.name)
        results = TopicResponse(name=topic.name)
        response.topics.append(results)
        for each in topic.partitions:
            yield 1
            key = topic.name, each.partition_index
            if key in seen:
                continue
            if not room:
                return
            seen.add(key)
            try:
                if is_refused:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                found = share_partitions.find_in_use(request.group_id, *key)
            except KafkaError as error:
                results.partitions.append(_failure(each.partition_index, error))
                continue
            result = PartitionResponse(partition_index=each.partition_index)
            results.partitions.append(result)
            for count in _described(found, result, each.first_offset, room):
                room -= count
                yield count


def _described(
    share_partition: SharePartition | None, result: PartitionResponse, position: int, room: int
) -> Iterator[int]:
    """Add at most `room` ranges of offsets, from the offset `position` on, to `result`.

    Add nothing if no member uses the share partition. Each step adds at most `LISTED_AT_ONCE` ranges, and
    then yields their number. Between the steps, the event loop can serve requests that change the ranges. The
    next step continues at the offset after the last range.

    If there are more than `room` ranges, set `result.next_offset`.
    """
    flight = share_partition.in_flight if share_partition is not None else None
    if share_partition is None or flight is None:
        return
    end = flight.end
    result.start_offset, result.end_offset = flight.start, end
    position = max(position, flight.start)
    while position < end:
        if not room:
            result.next_offset = position
            return
        ranges = flight.ranges_from(position, min(room, LISTED_AT_ONCE))
        result.state_batches += [
            StateBatch(
                first_offset=max(each.first, position),
                last_offset=each.last,
                delivery_state=each.state,
                delivery_count=each.deliveries,
                member_id=each.member,
                lock_timeout_ms=share_partition.lock_ms_left(each) if each.state == ACQUIRED else -1,
            )
            for each in ranges
        ]
        position = ranges[-1].last + 1 if ranges else end
        result.end_offset = max(position, end)
        room -= len(ranges)
        yield len(ranges)
