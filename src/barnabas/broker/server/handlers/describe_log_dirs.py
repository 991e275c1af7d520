"""DescribeLogDirs v1-4: returns the log directories and the replicas in them (KIP-113).

The response also has the sizes of the directories' volumes (KIP-827). If a log is moving from one directory
to another, the response lists the log in both. In the new directory, the log is a future replica.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from itertools import chain, repeat

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.awaitables import MaybeAwaitable
from barnabas.broker.logs import LogDirectory
from barnabas.broker.logs.manager import LogManager
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.requests.needs import Cluster
from barnabas.broker.storage import PartitionLog
from barnabas.kafka.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from barnabas.kafka.security.acls import Operation


def _failed(request: DescribeLogDirsRequest, error: KafkaError) -> DescribeLogDirsResponse:
    # Before v3 an error needs a directory. No directory at all says that the client may not see them.
    is_refused = error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    results = [] if is_refused else [DescribeLogDirsResult(error_code=error.code)]
    return DescribeLogDirsResponse(error_code=error.code, results=results)


@handles(
    DescribeLogDirsRequest,
    needs=[Cluster(Operation.DESCRIBE)],
    on_error=_failed,
    listing="results.topics.partitions",
    unconfirmed="it tells what this broker holds",
)
def describe_log_dirs(
    logs: LogManager, long_work: LongWork, context: RequestContext, request: DescribeLogDirsRequest
) -> MaybeAwaitable[DescribeLogDirsResponse]:
    wanted = None
    if request.topics is not None:
        wanted = {
            TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions
        }
    results = {directory.path: _directory(directory) for directory in logs.directories}
    unopened = [
        DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path)
        for path in logs.unopened
    ]
    topics: dict[tuple[str, str], DescribeLogDirsTopic] = {}
    # With a hundred thousand logs, this turn of the loop only copies references.
    groups = [
        (directory.path, each is directory.futures, list(_logs(each, wanted)))
        for directory in logs.directories
        if directory.failure is None
        for each in (directory.logs, directory.futures)
    ]
    paths = chain.from_iterable(repeat((path, is_future), len(found)) for path, is_future, found in groups)

    def describe(log: PartitionLog) -> None:
        path, is_future = next(paths)
        name, index = log.topic_partition
        # A follower lags behind the high watermark, a leader does not. A copy lags behind its log.
        current = logs.get(log.topic_partition) if is_future else None
        end = log.high_watermark if current is None else current.log_end_offset
        lag = max(0, end - log.log_end_offset)
        topic = topics.get((path, name))
        if topic is None:
            topic = topics[path, name] = DescribeLogDirsTopic(name=name)
            results[path].topics.append(topic)
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=index, partition_size=log.size, offset_lag=lag, is_future_key=is_future
            )
        )

    def respond(_: list[None]) -> DescribeLogDirsResponse:
        return DescribeLogDirsResponse(results=[*results.values(), *unopened])

    return long_work.listed(list(chain.from_iterable(found for _, _, found in groups)), describe, respond)


def _logs(
    logs: Mapping[TopicPartition, PartitionLog], wanted: set[TopicPartition] | None
) -> Iterable[PartitionLog]:
    if wanted is None:
        return logs.values()
    return [logs[each] for each in wanted if each in logs]


def _directory(directory: LogDirectory) -> DescribeLogDirsResult:
    result = DescribeLogDirsResult(log_dir=directory.path)
    if directory.failure is not None:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return result
    with contextlib.suppress(OSError):  # some systems do not know the sizes
        volume = directory.env.fs.volume(directory.path)
        result.total_bytes, result.usable_bytes = volume.size, volume.free
    return result
