"""DescribeSharePartitions v0: returns a share group's records in flight in partitions that this broker leads.

For each range of offsets from the start offset to the end offset, the response has the delivery state and the
delivery count. Acquired records also have their member, and the time that is left of the member's lock. The
broker describes 500 ranges at a time. So a long response can miss changes of the ranges described first.

This API is Barnabas' own: only the leader knows the locks, and no API of Apache Kafka returns them.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.base.errors import KafkaError
from barnabas.broker.awaitables import LongResponse, MaybeAwaitable
from barnabas.broker.metadata.features import SHARE_VERSION
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.long_work import LISTED_AT_ONCE
from barnabas.broker.server.requests.needs import Group, each_topic
from barnabas.broker.server.requests.pieces import Pieces
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
from barnabas.kafka.security.acls import Operation


@handles(
    DescribeSharePartitionsRequest,
    needs=[Group(Operation.DESCRIBE), each_topic(Operation.DESCRIBE, "topics")],
    pieces=[Pieces("topics.partition_indexes", "topics.partitions", size=64, unique=True)],
    is_heavy=True,
    listing="topics.partitions.state_batches",
    unconfirmed="it only informs",
    feature=SHARE_VERSION,
)
def describe_share_partitions(
    ports: SharePorts, context: RequestContext, request: DescribeSharePartitionsRequest
) -> MaybeAwaitable[DescribeSharePartitionsResponse]:
    response = DescribeSharePartitionsResponse()
    steps = _steps(ports.partitions, request, response)
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
    request: DescribeSharePartitionsRequest,
    response: DescribeSharePartitionsResponse,
) -> Iterator[None]:
    """Fill in the response, and yield after some ranges. Partitions that the request repeats are left out."""
    seen = set()
    described = 0
    for topic in request.topics:
        results = TopicResponse(name=topic.name)
        response.topics.append(results)
        for index in topic.partition_indexes:
            if (topic.name, index) in seen:
                continue
            seen.add((topic.name, index))
            result = PartitionResponse(partition_index=index)
            results.partitions.append(result)
            try:
                found = share_partitions.find_in_use(request.group_id, topic.name, index)
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message
                continue
            for count in _described(found, result):
                described += count
                if described >= LISTED_AT_ONCE:
                    described = 0
                    yield


def _described(share_partition: SharePartition | None, result: PartitionResponse) -> Iterator[int]:
    """Fill in the records in flight, `LISTED_AT_ONCE` ranges at a time.

    Fill in nothing if no member uses the share partition.

    After each step, yield how many ranges the step has filled in. The caller can let the event loop run
    there, so the records can change. The next step then continues at the offset after the last range.
    """
    flight = share_partition.in_flight if share_partition is not None else None
    if share_partition is None or flight is None:
        return
    position, end = flight.start, flight.end
    result.start_offset, result.end_offset = position, end
    while position < end:
        ranges = flight.ranges_from(position, LISTED_AT_ONCE)
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
        yield len(ranges)
