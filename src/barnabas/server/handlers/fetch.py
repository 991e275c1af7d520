"""Fetch v4-18: record batches for consumers, by long poll.

Fetch sessions (KIP-227), leader epochs (KIP-320), divergence (KIP-595), topic ids (KIP-516). The followers'
side (replica ids, their high watermarks) and reading from followers (KIP-392) come with replication: a
request with a replica id is answered with NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from barnabas.answers import Answer
from barnabas.config import BrokerConfig
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.protocol.wire import MAX_ELEMENTS
from barnabas.replication.manager import ReplicaManager
from barnabas.replication.purgatory import DelayedOperation
from barnabas.server.fetching.fetch import Fetch
from barnabas.server.fetching.sessions import FetchSessions, requested
from barnabas.server.requests.api import handles
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.long_work import LongWork


@dataclass(frozen=True, slots=True)
class Ports:
    """What the handler works on."""

    replicas: ReplicaManager
    sessions: FetchSessions
    long_work: LongWork
    config: Callable[[], BrokerConfig]


READ_COMMITTED = 1
#: topics are named by their ids from here on
TOPIC_ID_VERSION = 13
#: a fetch that has more partitions to read is made in steps
DIRECT_PARTITIONS = 200


def _failed(request: FetchRequest, error: KafkaError, whole: ErrorCode | None = None) -> FetchResponse:
    """The error for every partition, and (but before v7) for the `whole`."""
    topics = [
        FetchableTopicResponse(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=[
                PartitionData(
                    partition_index=wanted.partition, error_code=error.code, high_watermark=-1, records=b""
                )
                for wanted in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return FetchResponse(error_code=error.code if whole is None else whole, responses=topics)


@handles(FetchRequest, cancel_on_disconnect=True, on_error=_failed, most_elements=MAX_ELEMENTS)
def fetch(ports: Ports, context: RequestContext, request: FetchRequest) -> Answer[FetchResponse]:
    if request.replica_id >= 0 or request.replica_state.replica_id >= 0:
        return _failed(request, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER), ErrorCode.NONE)
    try:
        session = ports.sessions.resolve(request, context.api_version >= TOPIC_ID_VERSION)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    operation = Fetch(
        ports.replicas,
        session or requested(request),
        min_bytes=request.min_bytes,
        max_bytes=max(0, min(request.max_bytes, ports.config().fetch_max_bytes)),
        committed=request.isolation_level == READ_COMMITTED,
    )
    if operation.unread > DIRECT_PARTITIONS:
        context.exclusive = True
        return _fetch_many(ports, operation, request.max_wait_ms)
    response = operation.attempt(request.max_wait_ms <= 0)
    if response is not None:
        return response
    future = DelayedOperation([operation], request.max_wait_ms, operation.attempt).future
    future.add_done_callback(operation.close)
    return future


async def _fetch_many(ports: Ports, operation: Fetch, max_wait_ms: int) -> FetchResponse:
    """A fetch of so many partitions that it is made in steps between which others are served."""
    clock = asyncio.get_running_loop().time
    end = clock() + max_wait_ms / 1000
    try:
        while True:
            async for _ in ports.long_work.slices(operation.steps()):
                pass
            left_ms = round(1000 * (end - clock()))
            response = operation.outcome(left_ms <= 0)
            if response is not None:
                return response
            if not operation.has_moved():
                await DelayedOperation([operation], left_ms, operation.is_due).future
    finally:
        operation.close()
