"""ElectLeaders v0-2: elects preferred leaders (KIP-183), or starts unclean elections (KIP-460).

The response has the result of each election, so the handler ignores the request's timeout.
"""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.controller.elections import ElectionControl, ElectionType
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import Cluster
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.kafka.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from barnabas.kafka.security.acls import Operation


def _failed(request: ElectLeadersRequest, error: KafkaError) -> ElectLeadersResponse:
    asked = [TopicPartition(t.topic, n) for t in request.topic_partitions or () for n in t.partitions]
    return _response(dict.fromkeys(asked, error), error.code)


@handles(
    ElectLeadersRequest,
    needs=[Cluster(Operation.ALTER)],
    on_error=_failed,
    pieces=[
        Pieces(
            "topic_partitions.partitions", "replica_election_results.partition_result", size=1000, unique=True
        )
    ],
    listing="replica_election_results.partition_result",
    is_forwarded=True,
    is_audited=True,
)
async def elect_leaders(
    elections: ElectionControl, context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    try:
        kind = ElectionType(request.election_type)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"there is no election type {request.election_type}"
        ) from None
    asked = None
    if request.topic_partitions is not None:
        asked = {TopicPartition(t.topic, n): None for t in request.topic_partitions for n in t.partitions}
    return _response(await elections.elect(kind, asked))


def _response(
    results: dict[TopicPartition, KafkaError | None] | dict[TopicPartition, KafkaError],
    code: ErrorCode = ErrorCode.NONE,
) -> ElectLeadersResponse:
    topics: dict[str, ReplicaElectionResult] = {}
    for (name, number), error in results.items():
        topic = topics.setdefault(name, ReplicaElectionResult(topic=name))
        topic.partition_result.append(
            PartitionResult(partition_id=number, error_message=None)
            if error is None
            else PartitionResult(partition_id=number, error_code=error.code, error_message=error.message)
        )
    return ElectLeadersResponse(error_code=code, replica_election_results=list(topics.values()))
