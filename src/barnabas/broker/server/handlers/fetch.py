"""Fetch v4-18: returns record batches to consumers and followers, and waits for records (long poll).

The API supports fetch sessions (KIP-227), leader epochs (KIP-320), divergence (KIP-595), topic ids (KIP-516)
and the broker epochs of followers (KIP-903). Consumers can read from followers in their own rack (KIP-392).
From v16 on, responses to consumers name the new leaders of rejected partitions (KIP-951). A follower gets no
names, because it takes its leaders and their epochs from the cluster image only. The handler ignores the high
watermark in a follower's request (KIP-1166). A follower learns of a new high watermark with the next records,
or when its fetch times out.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicKey, TopicPartition
from barnabas.broker.awaitables import LongPoll, LongResponse, MaybeAwaitable, resolve
from barnabas.broker.logs.cold_reads import ColdReads
from barnabas.broker.metadata import MetadataLoader
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.replication.purgatory import DelayedOperation
from barnabas.broker.replication.throttles import ReplicationThrottles
from barnabas.broker.server.fetching.direct import DirectReplicaFetches
from barnabas.broker.server.fetching.fetch import Fetch, PreferredReplica
from barnabas.broker.server.fetching.preferred import RACK_AWARE, replica_in_rack
from barnabas.broker.server.fetching.repeated import RepeatedFetches
from barnabas.broker.server.fetching.replica_fetch import ReplicaFetch
from barnabas.broker.server.fetching.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchSession,
    FetchSessions,
    FetchTarget,
    ReplicaSession,
    ReplicaTarget,
    requested,
)
from barnabas.broker.server.requests.api import Direct, Outcome, handles
from barnabas.broker.server.requests.context import Client, RequestContext, UsageMeter
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.requests.needs import checked_by_handler, refusal
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.kafka.protocol.wire import MAX_ELEMENTS, Readable
from barnabas.kafka.security.acls import Access, Operation, ResourceType


@dataclass(frozen=True, slots=True)
class Ports:
    """The parts of the broker that this module's handler uses."""

    replicas: ReplicaManager
    sessions: FetchSessions
    long_work: LongWork
    cold_reads: ColdReads
    view: BrokerView
    throttles: ReplicationThrottles
    loader: MetadataLoader

    def is_in_doubt(self, partition: TopicPartition) -> bool:
        """Whether the partition's leader may have been replaced since its last known state (ADR 15)."""
        return any(self.loader.in_doubt([partition]))


READ_COMMITTED = 1
#: the first version whose clients can fetch from followers
FOLLOWERS_VERSION = 11
#: the first version with topic ids
TOPIC_ID_VERSION = 13
#: the first version whose responses name the leaders of rejected partitions
LEADERS_VERSION = 16
#: a fetch of more partitions reads them in steps
DIRECT_PARTITIONS = 200
#: number of a request's partitions that one step handles
NOTED_A_STEP = 200


def _failed(request: FetchRequest, error: KafkaError, whole: ErrorCode | None = None) -> FetchResponse:
    """Make a response with `error` for every partition.

    `whole` is the error of the whole response. If `whole` is None, the whole response has `error`, too.
    Before v7 the whole response has no error field.
    """
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


def _direct(ports: Ports) -> Direct:
    keep, repeat = partial(_keep, ports), partial(_repeat, ports)
    repeated = RepeatedFetches(FetchRequest.api_key, ports.sessions, ports.view, keep, repeat)
    of_followers = DirectReplicaFetches(
        ports.replicas, ports.sessions, ports.view, ports.throttles, partial(_attempt, ports)
    )

    def answer(frame: Readable, client: Client, access: Access, began: float, /) -> Outcome:
        outcome = of_followers(frame, client, access, began)
        return repeated(frame, client, access, began) if outcome is None else outcome

    return answer


@handles(
    FetchRequest,
    needs=[checked_by_handler("topic READ; a follower needs cluster CLUSTER_ACTION instead")],
    cancel_on_disconnect=True,
    on_error=_failed,
    max_elements=MAX_ELEMENTS,
    is_held_back=True,
    unconfirmed="it promises a prefix of the log; in doubt, an offset after its end is not out of range",
    direct=_direct,
)
def fetch(ports: Ports, context: RequestContext, request: FetchRequest) -> MaybeAwaitable[FetchResponse]:
    is_of_replica = request.replica_id >= 0 or request.replica_state.replica_id >= 0
    named = 0
    for topic in request.topics:
        named += len(topic.partitions)
    if named > DIRECT_PARTITIONS:
        return LongResponse(_fetch_named(ports, context, request, is_of_replica))
    return (_fetch_for_replica if is_of_replica else _fetch)(ports, context, request)


async def _fetch_named(
    ports: Ports, context: RequestContext, request: FetchRequest, is_of_replica: bool
) -> FetchResponse:
    """Execute a fetch that names many partitions: process the names in steps, then fetch.

    `is_of_replica` says whether a follower fetches. If the fetch session cannot continue, the response has
    the error.
    """
    if not is_of_replica and request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
        sessions, uses_topic_ids = ports.sessions, context.api_version >= TOPIC_ID_VERSION
        try:
            session = sessions.find(request, uses_topic_ids, context.connection.principal)
            async for _ in ports.long_work.slices(sessions.advance(session, request)):
                pass
        except KafkaError as error:
            return FetchResponse(error_code=error.code)
        return await resolve(_fetch_of(ports, context, request, session, session))
    noted = requested(request, ReplicaTarget if is_of_replica else FetchTarget)
    targets: list[FetchTarget] = []
    async for some in ports.long_work.slices(iter(lambda: list(islice(noted, NOTED_A_STEP)), [])):
        targets += some
    return await resolve((_fetch_for_replica if is_of_replica else _fetch)(ports, context, request, targets))


def _fetch(
    ports: Ports, context: RequestContext, request: FetchRequest, targets: Sequence[FetchTarget] = ()
) -> MaybeAwaitable[FetchResponse]:
    """Open or continue the session of a client's fetch, then execute the fetch.

    Return the response, or an awaitable of it. If the session cannot continue, the response has the error.

    Args:
        ports: parts of the broker.
        context: context of the request.
        request: the request.
        targets: targets of the request's partitions, if the caller has already created them.
    """
    try:
        session = ports.sessions.resolve(
            request, context.api_version >= TOPIC_ID_VERSION, context.connection.principal, targets
        )
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    return _fetch_of(ports, context, request, session, session or targets or requested(request))


def _fetch_of(
    ports: Ports,
    context: RequestContext,
    request: FetchRequest,
    session: FetchSession | None,
    wanted: FetchSession | Iterable[FetchTarget],
) -> MaybeAwaitable[FetchResponse]:
    """Read records from `wanted`: the session, or the request's partitions if there is no session.

    Return the response, or an awaitable of it that reads from disk or waits for records.
    """
    max_bytes = _max_bytes(ports, request)
    admits = None
    if context.usage is not None and context.usage.max_fetch_bytes < math.inf:
        max_bytes = min(max_bytes, int(context.usage.max_fetch_bytes))
        admits = partial(_admits, ports.sessions, session, context.usage)
    operation = Fetch(
        ports.replicas,
        wanted,
        min_bytes=request.min_bytes,
        max_bytes=max_bytes,
        committed=request.isolation_level == READ_COMMITTED,
        from_followers=context.api_version >= FOLLOWERS_VERSION,
        preferred=_preferred(ports, context, request.rack_id) if request.rack_id else None,
        admits=admits,
        refuses=None if context.access.is_unrestricted else partial(_refuses, ports, context.access),
        is_in_doubt=ports.is_in_doubt,
        view=ports.view if context.api_version >= LEADERS_VERSION else None,
        listener=context.connection.listener,
    )
    return _attempt(ports, context, operation, request.max_wait_ms)


def _max_bytes(ports: Ports, request: FetchRequest) -> int:
    """Return the largest allowed size of the response's records, in bytes."""
    return max(0, min(request.max_bytes, ports.view.config.fetch_max_bytes))


def _keep(ports: Ports, context: RequestContext, request: FetchRequest) -> Fetch:
    """Create a `Fetch` that `RepeatedFetches` keeps, and executes whenever the client sends `request`."""
    return Fetch(
        ports.replicas,
        requested(request),
        min_bytes=request.min_bytes,
        max_bytes=_max_bytes(ports, request),
        committed=request.isolation_level == READ_COMMITTED,
        from_followers=context.api_version >= FOLLOWERS_VERSION,
        is_in_doubt=ports.is_in_doubt,
        view=ports.view if context.api_version >= LEADERS_VERSION else None,
        listener=context.connection.listener,
        is_kept=True,
    )


def _repeat(
    ports: Ports, context: RequestContext, request: FetchRequest, operation: Fetch
) -> MaybeAwaitable[FetchResponse]:
    return _attempt(ports, context, operation, request.max_wait_ms)


def _admits(sessions: FetchSessions, session: FetchSession | None, usage: UsageMeter, size: int) -> bool:
    """Whether the client's quota allows `size` bytes now. If it does, charge them to the quota.

    If the quota does not allow them, and no response has contained the id of `session` yet, remove `session`.
    """
    if usage.admits_fetch(size):
        return True
    if session is not None and session.epoch == 1:
        sessions.drop(session)
    return False


def _refuses(ports: Ports, access: Access, topic: TopicKey) -> bool:
    name = topic if isinstance(topic, str) else ports.view.image.topic_names.get(topic)
    return name is not None and not access.on_topic(Operation.READ, name)


def _preferred(ports: Ports, context: RequestContext, rack: str) -> PreferredReplica | None:
    if ports.view.config.replica_selector_class != RACK_AWARE:
        return None
    return partial(replica_in_rack, ports.view.image.brokers, rack, context.listener)


def _fetch_for_replica(
    ports: Ports, context: RequestContext, request: FetchRequest, targets: Sequence[FetchTarget] = ()
) -> MaybeAwaitable[FetchResponse]:
    if not context.access.on_cluster(Operation.CLUSTER_ACTION):
        return _failed(request, refusal(ResourceType.TOPIC), ErrorCode.NONE)
    context.usage = None  # replication has throttles of its own
    state = request.replica_state
    replica = state.replica_id if state.replica_id >= 0 else request.replica_id
    session = None
    if replica in ports.view.image.brokers:  # else a client could have as many sessions as it finds numbers
        try:
            session = ports.sessions.resolve_replica(
                request, context.api_version >= TOPIC_ID_VERSION, replica, targets
            )
        except KafkaError as error:
            return FetchResponse(error_code=error.code)
    operation = ReplicaFetch(
        ports.replicas,
        session or targets or requested(request, ReplicaTarget),
        replica=replica,
        broker_epoch=state.replica_epoch,
        min_bytes=request.min_bytes,
        max_bytes=_max_bytes(ports, request),
        throttle=ports.throttles.leader,
    )
    max_wait_ms = 0 if session is not None and session.is_hurried else request.max_wait_ms
    return _attempt(ports, context, operation, max_wait_ms, session)


def _attempt(
    ports: Ports,
    context: RequestContext,
    operation: Fetch,
    max_wait_ms: int,
    session: ReplicaSession | None = None,
) -> MaybeAwaitable[FetchResponse]:
    """Return the response, or an awaitable of it.

    The result is an awaitable if the fetch reads more than `DIRECT_PARTITIONS` partitions, must read from
    disk, or must wait for records. A fetch does not wait for records after an error or without a wait time.

    Args:
        ports: parts of the broker.
        context: context of the request.
        operation: the fetch.
        max_wait_ms: longest wait for records, in milliseconds; 0 or less to wait for none.
        session: session of the follower that fetches; None if a consumer fetches.
    """
    if operation.unread > DIRECT_PARTITIONS:
        return LongResponse(_fetch_many(ports, operation, max_wait_ms))
    response = operation.attempt(max_wait_ms <= 0, may_wait=False)
    if response is not None:
        return response
    if operation.cold_reads:
        return _fetch_from_disk(ports, operation, max_wait_ms)
    # A consumer that asks again before it has its answer loses nothing by waiting.
    poll: LongPoll[FetchResponse] = LongPoll(FetchRequest.api_key if session is None else None)
    parked = DelayedOperation([operation], max_wait_ms, operation.attempt, poll)
    poll.ended_by(parked.expire)
    poll.call_at_once(operation.close)
    if session is not None:
        session.parked = parked
    return poll


async def _fetch_from_disk(ports: Ports, operation: Fetch, max_wait_ms: int) -> FetchResponse:
    """Execute a fetch that reads from disk. A thread reads, while the event loop serves other requests.

    After the reads, wait for records until `max_wait_ms` milliseconds after the call.
    """
    clock = asyncio.get_running_loop().time
    end = clock() + max_wait_ms / 1000
    try:
        while operation.cold_reads:
            await ports.cold_reads.warm(operation.cold_reads)
            left_ms = round(1000 * (end - clock()))
            response = operation.attempt(left_ms <= 0, may_wait=False)
            if response is not None:
                return response
        return await DelayedOperation([operation], left_ms, operation.attempt).future
    finally:
        operation.close()


async def _fetch_many(ports: Ports, operation: Fetch, max_wait_ms: int) -> FetchResponse:
    """Execute a fetch of many partitions in steps, between which the event loop serves other requests.

    If there are too few records, wait for more until `max_wait_ms` milliseconds after the call.
    """
    clock = asyncio.get_running_loop().time
    end = clock() + max_wait_ms / 1000
    try:
        while True:
            async for _ in ports.long_work.slices(operation.steps()):
                pass
            left_ms = round(1000 * (end - clock()))
            if operation.is_answered(left_ms <= 0):
                async for _ in ports.long_work.slices(operation.last_steps()):
                    pass
                return operation.response
            if operation.cold_reads:
                await ports.cold_reads.warm(operation.cold_reads)
            elif not operation.must_run_again():
                await DelayedOperation([operation], left_ms, operation.is_ready).future
    finally:
        operation.close()
