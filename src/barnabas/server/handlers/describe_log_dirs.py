"""DescribeLogDirs v1-4: the log directories, what lies in them (KIP-113), and the volumes' sizes (KIP-827).

Copies being moved from one directory to another (future replicas) do not exist here.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING

from barnabas.errors import ErrorCode, KafkaError
from barnabas.logs import LogDirectory
from barnabas.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from barnabas.server.handlers import handles
from barnabas.server.requests.context import RequestContext
from barnabas.storage import PartitionLog
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from barnabas.server.broker import Broker


def _failed(request: DescribeLogDirsRequest, error: KafkaError) -> DescribeLogDirsResponse:
    # Before v3 there is room for an error only with a directory.
    nowhere = DescribeLogDirsResult(error_code=error.code)
    return DescribeLogDirsResponse(error_code=error.code, results=[nowhere])


@handles(DescribeLogDirsRequest, on_error=_failed, listing="results.topics.partitions")
def describe_log_dirs(
    broker: Broker, context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse | Awaitable[DescribeLogDirsResponse]:
    wanted = None
    if request.topics is not None:
        wanted = {
            TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions
        }
    results = {directory.path: _directory(directory) for directory in broker.logs.directories}
    unopened = [
        DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path)
        for path in broker.logs.unopened
    ]
    topics: dict[str, dict[str, list[DescribeLogDirsPartition]]] = {path: {} for path in results}

    def describe(item: tuple[str, PartitionLog]) -> None:
        path, log = item
        name, index = log.topic_partition
        # The lag of a follower behind the high watermark; a leader has none.
        lag = max(0, log.high_watermark - log.log_end_offset)
        topics[path].setdefault(name, []).append(
            DescribeLogDirsPartition(partition_index=index, partition_size=log.size, offset_lag=lag)
        )

    def respond(_: list[None]) -> DescribeLogDirsResponse:
        for path, result in results.items():
            result.topics = [
                DescribeLogDirsTopic(name=name, partitions=found) for name, found in topics[path].items()
            ]
        return DescribeLogDirsResponse(results=[*results.values(), *unopened])

    return broker.long_work.listed(
        context,
        [
            (directory.path, log)
            for directory in broker.logs.directories
            if directory.failure is None
            for log in _logs(directory, wanted)
        ],
        describe,
        respond,
    )


def _logs(directory: LogDirectory, wanted: set[TopicPartition] | None) -> Iterable[PartitionLog]:
    if wanted is None:
        return directory.logs.values()
    return [directory.logs[each] for each in wanted if each in directory.logs]


def _directory(directory: LogDirectory) -> DescribeLogDirsResult:
    result = DescribeLogDirsResult(log_dir=directory.path)
    if directory.failure is not None:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return result
    with contextlib.suppress(OSError):  # sizes are told where the system tells them
        volume = shutil.disk_usage(directory.path)
        result.total_bytes, result.usable_bytes = volume.total, volume.free
    return result
