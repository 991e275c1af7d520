"""Answers usual fetches of followers directly from their bytes (ADR 25).

A usual fetch continues a session, and names few partitions or none. While it waits for records, the only
objects for it are a `_WaitingFetch` and its future. `ReplicaFetch` executes every other fetch. `ReplicaFetch`
also takes over a usual fetch as soon as something is unusual, for example an error, a divergence or a
throttle.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable
from typing import TypeAlias

from barnabas.base.errors import KafkaError
from barnabas.base.types import Chunk
from barnabas.broker.awaitables import LongPoll, MaybeAwaitable
from barnabas.broker.replication.fetch_layout import (
    MAX_PARTITIONS,
    VERSION,
    Result,
    SessionLayout,
    encode_answer,
    layout_of,
)
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.replication.throttles import ReplicationThrottles
from barnabas.broker.server.fetching.replica_fetch import ReplicaFetch
from barnabas.broker.server.fetching.sessions import FetchSessions, FetchTarget, ReplicaSession, ReplicaTarget
from barnabas.broker.server.requests.api import DIRECT_ELEMENTS, Begun, Outcome
from barnabas.broker.server.requests.context import Client, RequestContext
from barnabas.broker.storage import ColdRead
from barnabas.broker.storage.reading import NOTHING, FetchedRecords
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.framing import RequestHeader, encode_response, parse_counted
from barnabas.kafka.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.kafka.protocol.wire import Readable
from barnabas.kafka.security.acls import Access, Operation

_KEY = FetchRequest.api_key

#: goes on with a fetch whose session has been advanced: (context, fetch, max_wait_ms, session) -> response
GoOn: TypeAlias = Callable[[RequestContext, ReplicaFetch, int, ReplicaSession], MaybeAwaitable[FetchResponse]]


class DirectReplicaFetches:
    """Implements `Direct` for fetches of followers: answers usual fetches without a `ReplicaFetch`.

    A usual fetch continues a session, names at most `MAX_PARTITIONS` partitions and removes none. Its
    ``min_bytes`` is 1, and its maximum wait time is above 0.

    A call of this object returns the response to a usual fetch, or an awaitable of the response. For any
    other request, and while a partition of this broker is throttled, the call returns None. The caller must
    then pass the request to the API's handler.

    Args:
        replicas: finds the partitions of this broker.
        sessions: fetch sessions of the followers.
        view: settings of this broker, and the known brokers.
        throttles: `leader` is the throttle of the data that leaders send to followers (KIP-73).
        go_on: called if the fetch needs a `ReplicaFetch` after all, for example because of an error. The
            arguments are the request's context, the `ReplicaFetch`, the longest wait in milliseconds, and the
            follower's session. It returns the response, or an awaitable of it.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        sessions: FetchSessions,
        view: BrokerView,
        throttles: ReplicationThrottles,
        go_on: GoOn,
    ) -> None:
        self._replicas = replicas
        self._sessions = sessions
        self._view = view
        self._throttles = throttles
        self._go_on = go_on

    def __call__(self, frame: Readable, client: Client, access: Access, began: float, /) -> Outcome:
        try:
            layout = client.caches.get(_KEY)
            if not isinstance(layout, SessionLayout) or not layout.fits(frame):
                found = layout_of(frame)
                if found is None:
                    return None
                if layout is not None:
                    layout.close()
                client.caches[_KEY] = layout = found
            fetched = layout.read(frame)
        except (struct.error, IndexError):
            return None
        if fetched is None or not (access.is_unrestricted or access.on_cluster(Operation.CLUSTER_ACTION)):
            return None
        epoch, positions = fetched
        session = self._sessions.of_replica(layout.replica)
        if (
            session is None
            or session.session_id != layout.session_id
            or not session.may_continue(epoch)
            or layout.max_wait_ms <= 0
            or layout.min_bytes != 1
            or self.max_bytes(layout) <= 0
            or not self.is_unthrottled
            or layout.replica not in self._view.image.brokers
        ):
            return None
        targets = session.targets
        for position in positions:
            if position[:2] not in targets:
                return None
        self._sessions.note_fetch()
        session.continue_at(positions)
        waiting = _WaitingFetch(self, layout, session, frame)
        try:
            answer = waiting.begin() if len(session.ready) <= MAX_PARTITIONS else None
        except (_UnusualError, KafkaError, ColdRead):
            answer = None
        return self._begun(frame, client, access, layout, session) if answer is None else answer

    @property
    def is_unthrottled(self) -> bool:
        """Whether no partition of this broker is throttled as a leader."""
        return self._throttles.leader.is_idle

    def max_bytes(self, layout: SessionLayout) -> int:
        """Return the largest allowed size of the records in the response to a request.

        The size is in bytes. `layout` has the limit of the request.
        """
        return min(layout.max_bytes, self._view.config.fetch_max_bytes)

    def general(self, layout: SessionLayout, session: ReplicaSession) -> ReplicaFetch:
        """Return the `ReplicaFetch` that executes a follower's request.

        Args:
            layout: the fields of the request.
            session: fetch session of the follower.
        """
        return ReplicaFetch(
            self._replicas,
            session,
            replica=layout.replica,
            broker_epoch=layout.broker_epoch,
            min_bytes=layout.min_bytes,
            max_bytes=self.max_bytes(layout),
            throttle=self._throttles.leader,
        )

    def _begun(
        self, frame: Readable, client: Client, access: Access, layout: SessionLayout, session: ReplicaSession
    ) -> Begun:
        """Execute a follower's fetch by a `ReplicaFetch`, and return the response in a `Begun`.

        The response can be an awaitable. The caller has already advanced the fetch session.

        Args:
            frame: the request, from which this method parses the header and the body.
            client: the follower's connection.
            access: permissions of the follower.
            layout: the fields of the request.
            session: fetch session of the follower.
        """
        header, request, _ = parse_counted(frame, DIRECT_ELEMENTS)
        context = RequestContext(header, client)
        context.access = access
        operation = self.general(layout, session)
        return Begun(header, context, request, self._go_on(context, operation, layout.max_wait_ms, session))


class _UnusualError(Exception):
    """Raised if a follower's fetch needs a `ReplicaFetch`, for example because the logs may diverge."""


class _WaitingFetch:
    """A follower's fetch that is executed without a `ReplicaFetch`.

    If there are no records for it, the fetch waits. It then implements `TargetListener`, and receives the
    notifications of the partitions.
    """

    __slots__ = (
        "_is_scheduled",
        "_layout",
        "_loop",
        "_number",
        "_owner",
        "_poll",
        "_read",
        "_session",
        "_timer",
        "_unread",
    )

    def __init__(
        self, owner: DirectReplicaFetches, layout: SessionLayout, session: ReplicaSession, frame: Readable
    ) -> None:
        self._owner = owner
        self._layout = layout
        self._session = session
        self._number = int.from_bytes(frame[4:8], signed=True)
        #: the records that were read, in the order of the response
        self._read: dict[FetchTarget, FetchedRecords] = {}
        #: the partitions to read for the answer
        self._unread: dict[FetchTarget, None] = {}
        self._is_scheduled = False

    def begin(self) -> list[Chunk] | LongPoll[list[Chunk]]:
        """Report the follower's positions to the partitions, and read the partitions' new records.

        Return the response if there are records. If there are none, return a long poll that gets the response
        later.

        Raises:
            _UnusualError, KafkaError, ColdRead: as `_read_all`. The caller must then execute the request by
                `ReplicaFetch`.
        """
        if self._read_all(list(self._session.ready), may_wait=False):
            return self._response()
        loop = self._loop = asyncio.get_running_loop()
        poll: LongPoll[list[Chunk]] = LongPoll()
        self._poll = poll
        self._timer = loop.call_later(self._layout.max_wait_ms / 1000, self.expire)
        poll.ended_by(self.expire)
        poll.call_at_once(self._end)
        self._session.join(self)
        self._session.parked = self
        return poll

    def expire(self) -> None:
        """Answer now, as at the end of the time limit."""
        self._try(True)

    def on_progress(self, target: FetchTarget, new_bytes: int) -> None:
        """Read the partition `target` in a later turn of the event loop (`TargetListener`).

        `new_bytes` is not used.
        """
        self._unread[target] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._try, False)

    def on_change(self, target: FetchTarget) -> None:
        """Note that the response must also contain the partition `target` (`TargetListener`).

        The change of the partition alone causes no response.
        """
        self._unread[target] = None

    def _end(self, _poll: object) -> None:
        self._timer.cancel()
        self._session.leave(self)

    def _try(self, is_final: bool) -> None:
        self._is_scheduled = False
        if self._poll.done():
            return
        try:
            answer = self._answer(is_final)
        except Exception as error:
            self._poll.set_exception(error)
            return
        if answer is not None:
            self._poll.set_result(answer)

    def _answer(self, is_final: bool) -> list[Chunk] | None:
        unread, self._unread = self._unread, {}
        read = dict.fromkeys(self._read, NOTHING)
        try:
            if not self._owner.is_unthrottled or len(read) + len(unread) > MAX_PARTITIONS:
                raise _UnusualError
            return self._response() if self._read_all(unread, may_wait=True) or is_final else None
        except (_UnusualError, KafkaError):
            operation = self._owner.general(self._layout, self._session)
        operation.resume(read, unread)
        response = operation.attempt(is_final)
        if response is None:
            operation.close()
            self._read = read | dict.fromkeys(unread, NOTHING)
            return None
        return encode_response(RequestHeader(_KEY, VERSION, self._number, None), response)

    def _read_all(self, targets: Iterable[FetchTarget], may_wait: bool) -> int:
        """Read `targets` in order, up to the size limit of the response. Return the number of record bytes.

        If the follower's position in a partition is new, first report the position to this partition. If
        `may_wait` is False, read from memory only. If `may_wait` is True, the event loop may wait for the
        disk.

        Raises:
            _UnusualError: this broker does not lead a partition in the follower's epoch, or the logs may
                diverge.
            KafkaError: a log cannot be read.
            ColdRead: `may_wait` is False, and the records are not in memory.
        """
        layout = self._layout
        left = self._owner.max_bytes(layout)
        size = 0
        for target in targets:
            if size and not left:
                break
            partition = target.partition
            if (
                partition is None
                or partition.unavailable is not None
                or not partition.is_leader
                or partition.state.leader_epoch != target.current_leader_epoch
            ):
                raise _UnusualError
            log = partition.log
            end = log.log_end_offset
            offset = target.offset
            if target.last_fetched_epoch != log.latest_epoch or not log.log_start_offset <= offset <= end:
                raise _UnusualError
            assert isinstance(target, ReplicaTarget)
            if target.is_new:
                partition.followed(layout.replica, layout.broker_epoch, offset, target.replica_start)
                target.is_new = False
            records = NOTHING
            max_bytes = min(left, target.max_bytes)
            if offset != end and (max_bytes > 0 or not size):
                records = log.read(offset, max_bytes, end, not size, may_wait)
                size += records.size
                left = max(0, left - records.size)
            self._read[target] = records
        return size

    def _response(self) -> list[Chunk]:
        session = self._session
        results: list[Result] = []
        for target, (chunks, size) in self._read.items():
            partition, topic_id = target.partition, target.topic
            assert partition is not None and isinstance(topic_id, bytes)
            log = partition.log
            high_watermark, start = log.high_watermark, log.log_start_offset
            is_news = target.high_watermark != high_watermark or target.log_start_offset != start
            target.high_watermark, target.log_start_offset = high_watermark, start
            if size:
                session.move_to_end(target)
                partition.traffic.replication_bytes_out += size
            else:
                if target.offset == log.log_end_offset:
                    session.remove_ready(target)
                if not is_news:
                    continue
            stable = log.last_stable_offset
            results.append((topic_id, target.index, high_watermark, stable, start, chunks, size))
        return encode_answer(self._number, session.session_id, results)
