"""DeleteRecords v0-2: move the log start offset of partitions (KIP-107).

The answer is given when the new log start offsets are safe on disk: what was deleted stays deleted.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.errors import ErrorCode, KafkaError
from barnabas.logs import LogDirectory
from barnabas.logs.manager import LogManager
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from barnabas.replication.manager import ReplicaManager
from barnabas.server.requests.api import handles
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.pieces import Pieces
from barnabas.storage import PartitionLog
from barnabas.types import INTERNAL_TOPICS, Offset


@dataclass(frozen=True, slots=True)
class Ports:
    """What the handler works on."""

    replicas: ReplicaManager
    logs: LogManager


#: in place of an offset: everything below the high watermark
HIGH_WATERMARK = -1


def _failed(request: DeleteRecordsRequest, error: KafkaError) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    for topic in request.topics:
        results = [
            DeleteRecordsPartitionResult(
                partition_index=wanted.partition_index, low_watermark=-1, error_code=error.code
            )
            for wanted in topic.partitions
        ]
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    return response


@handles(
    DeleteRecordsRequest, on_error=_failed, pieces=[Pieces("topics.partitions", size=128)], is_heavy=True
)
async def delete_records(
    ports: Ports, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    planned: dict[LogDirectory, list[tuple[PartitionLog, Offset, DeleteRecordsPartitionResult]]] = {}
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            result = DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=-1)
            try:
                log, offset = _plan(ports, topic.name, wanted.partition_index, wanted.offset)
            except KafkaError as error:
                result.error_code = error.code
            else:
                directory = ports.logs.directory_of(log.topic_partition)
                planned.setdefault(directory, []).append((log, offset, result))
            results.append(result)
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    for directory, plans in planned.items():
        failure = None
        try:
            await ports.logs.store_log_starts(directory, [(log, offset) for log, offset, _ in plans])
        except KafkaError as error:
            failure = error
        for log, offset, result in plans:
            try:
                if failure is not None:
                    raise failure
                log.advance_log_start(offset)
                result.low_watermark = log.log_start_offset
            except KafkaError as error:
                result.error_code = error.code
    return response


def _plan(ports: Ports, topic: str, index: int, offset: Offset) -> tuple[PartitionLog, Offset]:
    """The log of a partition, and where it is to start."""
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = ports.replicas.find(topic, index)
    partition.check_leader()
    log = partition.log
    if "delete" not in log.config.cleanup_policy:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    if offset < HIGH_WATERMARK:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    start = log.high_watermark if offset == HIGH_WATERMARK else offset
    log.check_log_start(start)
    return log, start
