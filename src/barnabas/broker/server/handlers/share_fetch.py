"""ShareFetch v1-2: acquires records for a member of a share group, and acknowledges earlier ones (long poll).

The API supports share sessions (KIP-932), the strict limit of records (KIP-1206), and renewals of locks
(KIP-1222). A request with renewals fetches nothing. While a request waits for `min_bytes`, it acquires no
records: other members can acquire them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.tasks import start_task
from barnabas.broker.awaitables import LongPoll, LongResponse, MaybeAwaitable, resolve
from barnabas.broker.metadata.features import SHARE_VERSION
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import Group, checked_by_handler
from barnabas.broker.server.responses.leaders import MOVED, Leaders
from barnabas.broker.server.share_requests import (
    SharePorts,
    acknowledging_of,
    is_long,
    lock_timeout_ms,
    member_of,
    refuses,
)
from barnabas.broker.sharing.fetch import Fetched, ShareFetch
from barnabas.broker.sharing.sessions import FINAL_EPOCH, INITIAL_EPOCH, ShareSession, Target
from barnabas.broker.sharing.share_partition import FetchLimits
from barnabas.kafka.protocol.messages.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from barnabas.kafka.protocol.wire import MAX_ELEMENTS
from barnabas.kafka.security.acls import Operation

#: acquire modes (KIP-1206)
BATCH_OPTIMISED, RECORD_LIMIT = 0, 1


@handles(
    ShareFetchRequest,
    needs=[Group(Operation.READ), checked_by_handler("topic READ")],
    cancel_on_disconnect=True,
    max_elements=MAX_ELEMENTS,
    is_held_back=True,
    unconfirmed="the share coordinator refuses a former leader",
    feature=SHARE_VERSION,
)
def share_fetch(
    ports: SharePorts, context: RequestContext, request: ShareFetchRequest
) -> MaybeAwaitable[ShareFetchResponse]:
    _check(request)
    session = _session(ports, context, request)
    exchange = _Exchange(ports, context, request, session)
    if is_long(exchange.acknowledging, len(session.targets)):
        return LongResponse(_in_slices(ports, exchange))
    for _ in exchange.steps():
        pass
    return exchange.answer()


async def _in_slices(ports: SharePorts, exchange: _Exchange) -> ShareFetchResponse:
    async for _ in ports.long_work.slices(exchange.steps()):
        pass
    return await resolve(exchange.answer())


def _check(request: ShareFetchRequest) -> None:
    if request.share_acquire_mode not in (BATCH_OPTIMISED, RECORD_LIMIT):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"there is no share acquire mode {request.share_acquire_mode}"
        )
    if request.is_renew_ack and (
        request.max_bytes > 0 or request.min_bytes > 0 or request.max_records > 0 or request.max_wait_ms > 0
    ):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "a request with renewals fetches nothing: its limits are 0"
        )
    if request.share_session_epoch == INITIAL_EPOCH and any(
        partition.acknowledgement_batches for topic in request.topics for partition in topic.partitions
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a new share session has nothing to acknowledge")


def _session(ports: SharePorts, context: RequestContext, request: ShareFetchRequest) -> ShareSession:
    """Return the share session of the request.

    The session epoch of the request decides:

    - Initial epoch: open a session with the partitions of the request.
    - Final epoch: find the member's session, without a change. The caller must close this session.
    - Any other epoch: find the member's session, add the partitions of the request, and remove the forgotten
      partitions.

    Raises:
        KafkaError: the errors of `ShareSessions.open`, `ShareSessions.find` and `ShareSessions.change`. For
            example, SHARE_SESSION_NOT_FOUND: the member has no session.
    """
    sessions, member, epoch = ports.sessions, member_of(request), request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        session = sessions.open(member, context.connection)
        ports.partitions.check_states(member.group)
    else:
        session = sessions.find(member, epoch)
    if epoch != FINAL_EPOCH:
        sessions.change(
            session,
            (
                Target(topic.topic_id, each.partition_index)
                for topic in request.topics
                for each in topic.partitions
            ),
            (
                Target(topic.topic_id, each)
                for topic in request.forgotten_topics_data
                for each in topic.partitions
            ),
        )
    return session


class _Exchange:
    """Executes one ShareFetch request: its acknowledgements, then its fetch, then the response."""

    def __init__(
        self, ports: SharePorts, context: RequestContext, request: ShareFetchRequest, session: ShareSession
    ) -> None:
        self._ports = ports
        self._context = context
        self._request = request
        self._session = session
        self.acknowledging = acknowledging_of(ports, context, request)
        self._began = ports.view.clock.monotonic()
        max_bytes = max(0, min(request.max_bytes, ports.view.config.fetch_max_bytes))
        if context.usage is not None:
            max_bytes = int(min(max_bytes, context.usage.max_fetch_bytes))
        is_final = request.share_session_epoch == FINAL_EPOCH
        wants_none = is_final or request.is_renew_ack or request.max_records <= 0
        self._waits = not wants_none and request.max_wait_ms > 0 and bool(session.targets)
        self._fetch = ShareFetch(
            session.member,
            () if wants_none else session.targets,
            ports.partitions,
            refuses(ports, context),
            FetchLimits(
                max_bytes=max_bytes,
                min_one=True,
                max_records=request.max_records,
                batch_size=max(0, request.batch_size),
                is_strict=request.share_acquire_mode == RECORD_LIMIT,
            ),
            request.min_bytes if self._waits else 1,
            partial(ports.sessions.is_open, session),
        )

    def steps(self) -> Iterator[None]:
        """Apply the acknowledgements of the request, then fetch records.

        The iterator yields None between the steps, so that the caller can let the event loop serve requests.
        The fetch comes last, so that it can acquire records that the acknowledgements release.
        """
        yield from self.acknowledging.steps()
        if self._request.share_session_epoch == FINAL_EPOCH:
            self._ports.sessions.close(self._session)
        yield from self._fetch.steps()

    def answer(self) -> MaybeAwaitable[ShareFetchResponse]:
        """Return the response, or an awaitable for it.

        The result is an awaitable if the request waits for records, or if the acknowledgements are not stored
        yet.
        """
        waits = self._waits and not self._fetch.results
        if not waits and self.acknowledging.is_stored:
            self._count()
            return self._response()
        poll: LongPoll[ShareFetchResponse] = LongPoll(ShareFetchRequest.api_key)
        poll.call_at_once(self._fetch.leave)  # after the end of the connection it must acquire nothing
        fetched = partial(self._fetched, poll)
        if not waits:
            fetched()
            return poll
        end_wait = self._fetch.end_wait
        timer = asyncio.get_running_loop().call_later(self._request.max_wait_ms / 1000, end_wait)
        poll.add_done_callback(lambda _: timer.cancel())
        poll.ended_by(end_wait)
        self._fetch.wait(fetched, self._run)
        return poll

    def _run(self, steps: Iterator[None]) -> None:
        """Start a task that executes the steps of a share fetch that has waited for records. Return at once.

        The task runs in slices of a few milliseconds. Between them, the event loop can serve other requests.
        """
        start_task(self._ports.long_work.finish(steps), "share fetch")

    def _fetched(self, poll: LongPoll[ShareFetchResponse]) -> None:
        """End the fetch of records. When the acknowledgements are stored, complete the future `poll`.

        The result of `poll` is the response.
        """
        self._count()
        self._fetch.leave()
        self.acknowledging.when_stored(partial(self._respond, poll))

    def _count(self) -> None:
        """Add the fetch to the share group's metrics, unless the request fetches nothing."""
        fetch, ports = self._fetch, self._ports
        if fetch.requested:
            seconds = ports.view.clock.monotonic() - self._began
            group = self._session.member.group
            ports.partitions.counts.fetched(group, fetch.acquired, fetch.requested, seconds)

    def _respond(self, poll: LongPoll[ShareFetchResponse]) -> None:
        if not poll.done():
            poll.set_result(self._response())

    def _response(self) -> ShareFetchResponse:
        ports, member = self._ports, self._session.member
        if self._context.usage is not None and self._fetch.size:
            self._context.usage.charge_fetch(self._fetch.size)  # the member has acquired them
        leaders = Leaders(ports.view, self._context.listener)
        found: dict[Target, PartitionData] = {}
        for fetched in self._fetch.results:
            found[fetched.target] = _described(fetched, leaders)
            if fetched.acquired:
                self._session.move_to_end(fetched.target)
        for target, error in self.acknowledging.outcomes.items():
            data = found.setdefault(target, PartitionData(partition_index=target.partition))
            if error is not None:
                data.acknowledge_error_code, data.acknowledge_error_message = error.code, error.message
                if error.code in MOVED:
                    data.current_leader = leaders.of(*target)
        topics: dict[bytes, ShareFetchableTopicResponse] = {}
        for target, data in found.items():
            topic = topics.setdefault(target.topic_id, ShareFetchableTopicResponse(topic_id=target.topic_id))
            topic.partitions.append(data)
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=lock_timeout_ms(ports, member),
            responses=list(topics.values()),
            node_endpoints=leaders.endpoints,
        )


def _described(fetched: Fetched, leaders: Leaders) -> PartitionData:
    data = PartitionData(partition_index=fetched.target.partition)
    error = fetched.error
    if error is not None:
        data.error_code, data.error_message = error.code, error.message
        if error.code in MOVED:
            data.current_leader = leaders.of(*fetched.target)
        return data
    data.records = [fetched.records]
    data.acquired_records = [
        AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
        for first, last, count in fetched.acquired
    ]
    return data
