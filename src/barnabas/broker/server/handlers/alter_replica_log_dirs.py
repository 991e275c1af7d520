"""AlterReplicaLogDirs v1-2: moves replicas to other log directories of this broker (KIP-113).

The response means that the copies have begun. DescribeLogDirs shows their progress.
"""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.logs.moves import LogMoves
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.requests.needs import Cluster
from barnabas.kafka.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from barnabas.kafka.security.acls import Operation


def _failed(request: AlterReplicaLogDirsRequest, error: KafkaError) -> AlterReplicaLogDirsResponse:
    return _answer({(t.name, p): error.code for d in request.dirs for t in d.topics for p in t.partitions})


@handles(
    AlterReplicaLogDirsRequest,
    needs=[Cluster(Operation.ALTER)],
    on_error=_failed,
    unconfirmed="it tells what this broker holds",
    is_audited=True,
)
async def alter_replica_log_dirs(
    replicas: ReplicaManager,
    moves: LogMoves,
    long_work: LongWork,
    context: RequestContext,
    request: AlterReplicaLogDirsRequest,
) -> AlterReplicaLogDirsResponse:
    codes: dict[tuple[str, int], ErrorCode] = {}
    wanted = ((d.path, t.name, p) for d in request.dirs for t in d.topics for p in t.partitions)
    async for path, topic, index in long_work.slices(wanted):
        codes[topic, index] = _begin(replicas, moves, TopicPartition(topic, index), path)
    return _answer(codes)


def _begin(replicas: ReplicaManager, moves: LogMoves, partition: TopicPartition, path: str) -> ErrorCode:
    try:
        try:
            replicas.find(*partition)  # a new one may not be open yet
        except KafkaError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                raise
        moves.begin(partition, path)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _answer(codes: dict[tuple[str, int], ErrorCode]) -> AlterReplicaLogDirsResponse:
    response = AlterReplicaLogDirsResponse()
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (name, index), code in codes.items():
        if name not in topics:
            topics[name] = AlterReplicaLogDirTopicResult(topic_name=name)
            response.results.append(topics[name])
        result = AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
        topics[name].partitions.append(result)
    return response
