"""DeleteRecords v0-2: moves the log start offset of partitions (KIP-107).

The broker answers when the new log start offsets are on its disk and on the disk of every live follower. So
no later leader has the deleted records.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import INTERNAL_TOPICS, LeaderEpoch, Offset
from barnabas.broker.logs import LogDirectory
from barnabas.broker.logs.manager import LogManager
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.purgatory import DelayedOperation
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import each_topic
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.kafka.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from barnabas.kafka.security.acls import Operation

#: special offset: delete all records below the high watermark
HIGH_WATERMARK = -1


@handles(
    DeleteRecordsRequest,
    needs=[each_topic(Operation.DELETE, "topics")],
    pieces=[Pieces("topics.partitions", size=128)],
    is_heavy=True,
    unconfirmed="the in-sync replicas commit it",
    is_audited=True,
)
async def delete_records(
    replicas: ReplicaManager, logs: LogManager, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    planned: list[_Deletion] = []
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            result = DeleteRecordsPartitionResult(partition_index=wanted.partition_index)
            try:
                planned.append(_plan(replicas, topic.name, wanted.partition_index, wanted.offset, result))
            except KafkaError as error:
                result.error_code = error.code
            results.append(result)
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    left = planned
    while left:
        directory = logs.find_directory(left[0].partition.topic_partition)
        deletions, left = _split(logs, left, directory)
        await _delete(logs, directory, deletions)
    await _followers_have_deleted(planned, request.timeout_ms)
    return response


def _split(
    logs: LogManager, deletions: list[_Deletion], directory: LogDirectory | None
) -> tuple[list[_Deletion], list[_Deletion]]:
    """Return the deletions in logs of `directory`, and the others.

    A log can move to another directory while the deletions in a third one are stored. So call this again for
    each directory.
    """
    found: tuple[list[_Deletion], list[_Deletion]] = [], []
    for deletion in deletions:
        found[logs.find_directory(deletion.partition.topic_partition) is not directory].append(deletion)
    return found


async def _delete(logs: LogManager, directory: LogDirectory | None, deletions: list[_Deletion]) -> None:
    """Store the new start offsets of logs in one directory, and then advance the logs.

    Write an error into the `result` of each deletion that fails. `directory` is None if there are no logs any
    more.
    """
    failure = None
    try:
        if directory is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        starts = [(deletion.partition.log, deletion.start) for deletion in deletions]
        await logs.checkpoints.store_log_starts(directory, starts)
    except KafkaError as error:
        failure = error
    for partition, epoch, start, result in deletions:
        try:
            if failure is not None:
                raise failure
            partition.check_leader(epoch)
            partition.log.advance_log_start(start)
        except KafkaError as error:
            result.error_code = error.code


class _Deletion(NamedTuple):
    """A planned deletion of records in one partition that this broker leads."""

    partition: Partition
    leader_epoch: LeaderEpoch
    #: the new log start offset
    start: Offset
    #: the partition's part of the response
    result: DeleteRecordsPartitionResult


async def _followers_have_deleted(deletions: list[_Deletion], timeout_ms: int) -> None:
    """Wait until each partition's low watermark reaches its new log start offset.

    Wait for at most `timeout_ms` milliseconds. Write the low watermark or an error into the `result` of each
    deletion. The error is REQUEST_TIMED_OUT after the time limit. If this broker's leadership has ended, it
    is the error of `Partition.check_leader`. Ignore deletions whose `result` already has an error.
    """
    left = [deletion for deletion in deletions if not deletion.result.error_code]

    def attempt(expired: bool) -> bool | None:
        waiting = []
        for deletion in left:
            partition, epoch, start, result = deletion
            try:
                partition.check_leader(epoch)
            except KafkaError as error:
                result.error_code = error.code
                continue
            low = partition.low_watermark
            if low >= start:
                result.low_watermark = low
            elif expired:
                result.error_code = ErrorCode.REQUEST_TIMED_OUT
            else:
                waiting.append(deletion)
        left[:] = waiting
        return None if left else True

    if attempt(False) is None:
        await DelayedOperation([deletion.partition for deletion in left], timeout_ms, attempt).future


def _plan(
    replicas: ReplicaManager, topic: str, index: int, offset: Offset, result: DeleteRecordsPartitionResult
) -> _Deletion:
    """Return the deletion of the records before `offset`; for -1, of those before the high watermark.

    This deletes nothing yet.

    Args:
        replicas: finds the partitions of this broker.
        topic: name of the topic.
        index: number of the partition.
        offset: offset in the request.
        result: the partition's part of the response, to which the returned deletion refers.

    Raises:
        KafkaError: INVALID_TOPIC_EXCEPTION, the topic is internal; POLICY_VIOLATION, it is only
            compacted; OFFSET_OUT_OF_RANGE, `offset` is below -1 or above the high watermark; the errors of
            `ReplicaManager.find` and `Partition.check_leader`.
    """
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = replicas.find(topic, index)
    partition.check_leader()
    log = partition.log
    if log.config.cleanup_policy == ("compact",):
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    if offset < HIGH_WATERMARK:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    start = log.high_watermark if offset == HIGH_WATERMARK else offset
    log.check_log_start(start)
    return _Deletion(partition, partition.leader_epoch, start, result)
