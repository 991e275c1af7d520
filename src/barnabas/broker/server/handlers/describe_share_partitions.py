"""DescribeSharePartitions v0: returns a share group's records in flight in partitions that this broker leads.

For each range of offsets from the start offset to the end offset, the response has the delivery state and the
delivery count. Acquired records also have their member, and the time that is left of the member's lock.

This API is Barnabas' own: only the leader knows the locks, and no API of Apache Kafka returns them.
"""

from __future__ import annotations

from barnabas.base.errors import KafkaError
from barnabas.broker.metadata.features import SHARE_VERSION
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import Group, each_topic
from barnabas.broker.server.requests.pieces import Pieces
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
    share_partitions: SharePartitions, context: RequestContext, request: DescribeSharePartitionsRequest
) -> DescribeSharePartitionsResponse:
    response = DescribeSharePartitionsResponse()
    for topic in request.topics:
        results = []
        for index in topic.partition_indexes:
            result = PartitionResponse(partition_index=index)
            try:
                _describe(share_partitions.find_in_use(request.group_id, topic.name, index), result)
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message
            results.append(result)
        response.topics.append(TopicResponse(name=topic.name, partitions=results))
    return response


def _describe(share_partition: SharePartition | None, result: PartitionResponse) -> None:
    """Fill in the records in flight; nothing if no member uses the share partition."""
    flight = share_partition.in_flight if share_partition is not None else None
    if share_partition is None or flight is None:
        return
    result.start_offset, result.end_offset = flight.start, flight.end
    result.state_batches = [
        StateBatch(
            first_offset=each.first,
            last_offset=each.last,
            delivery_state=each.state,
            delivery_count=each.deliveries,
            member_id=each.member,
            lock_timeout_ms=share_partition.lock_ms_left(each) if each.state == ACQUIRED else -1,
        )
        for each in flight.ranges()
    ]
