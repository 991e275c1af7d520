"""AlterPartitionReassignments v0-1: moves partitions to other brokers, or cancels moves (KIP-455, KIP-860).

The response does not wait for the moves, so the handler ignores the request's timeout.
"""

from __future__ import annotations

from collections import Counter

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.controller.reassignments import ReassignmentControl
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import Cluster
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.kafka.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from barnabas.kafka.security.acls import Operation

#: the controller reads a topic again for each piece: large ones are better than small ones
_PIECE = 1000


def _failed(
    request: AlterPartitionReassignmentsRequest, error: KafkaError
) -> AlterPartitionReassignmentsResponse:
    """Make a response with the error for the whole request and for each partition.

    Kafka's own client expects each partition in the response.
    """
    return AlterPartitionReassignmentsResponse(
        error_code=error.code,
        error_message=error.message,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _result(TopicPartition(topic.name, partition.partition_index), error)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


@handles(
    AlterPartitionReassignmentsRequest,
    on_error=_failed,
    needs=[Cluster(Operation.ALTER)],
    pieces=[Pieces("topics.partitions", "responses.partitions", size=_PIECE, unique=True)],
    is_forwarded=True,
    is_audited=True,
)
async def alter_partition_reassignments(
    reassignments: ReassignmentControl, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    asked = [
        (TopicPartition(topic.name, partition.partition_index), partition.replicas)
        for topic in request.topics
        for partition in topic.partitions
    ]
    named = Counter(partition for partition, _ in asked)
    errors = await reassignments.alter(
        {partition: target for partition, target in asked if named[partition] == 1},
        may_change_factor=request.allow_replication_factor_change,
    )
    for partition, times in named.items():
        if times > 1:
            twice = f"the request names {partition} {times} times"
            errors[partition] = KafkaError(ErrorCode.INVALID_REQUEST, twice)
    topics: dict[str, ReassignableTopicResponse] = {}
    for partition in named:
        topic = topics.setdefault(partition.topic, ReassignableTopicResponse(name=partition.topic))
        topic.partitions.append(_result(partition, errors.get(partition)))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=list(topics.values()),
    )


def _result(partition: TopicPartition, error: KafkaError | None) -> ReassignablePartitionResponse:
    if error is None:
        return ReassignablePartitionResponse(partition_index=partition.partition)
    return ReassignablePartitionResponse(
        partition_index=partition.partition, error_code=error.code, error_message=error.message
    )
