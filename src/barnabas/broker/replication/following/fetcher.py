"""Copies partitions from one leader, in one fetch session.

A request names only new partitions, and partitions whose log end or log start here has changed. A response
has only the partitions with changes at the leader, for example new records. So a partition without changes
needs no work, neither here nor at the leader (`barnabas.broker.server.fetching`).

While a request waits at the leader, the fetcher may send a second request, for other partitions. The leader
then answers the first request at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.tasks import start_task
from barnabas.base.text import logger_of
from barnabas.base.types import BrokerId, Buffer, Offset
from barnabas.broker.interbroker import BrokerClient, ChannelError
from barnabas.broker.replication.fetch_layout import ReceivedData, UsualFetch, UsualResponse
from barnabas.broker.replication.following.fetch_session import Followed, FollowerFetchSession, Key
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.partition.follower import Follower
from barnabas.broker.replication.throttles import Throttle
from barnabas.broker.storage.harm import is_busy
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData

if TYPE_CHECKING:
    from barnabas.broker.storage import PartitionLog
    from barnabas.broker.storage.truncation import Truncation

log = logger_of(__name__)

#: the version with `ReplicaState`. The next one adds our high watermark, which the leader does not use
_VERSION = 17
#: a fetch with more partitions is not delayed at the leader: a second fetch could not end the delay
_MAX_PARKED = 100
#: most partitions that a request adds to a session: more would delay the event loop
_MAX_NAMED = 500
#: seconds before the first retry; each wait is twice the one before, up to replica.fetch.backoff.ms
_FIRST_BACKOFF = 0.02
#: seconds of work on a response after which the event loop runs other tasks
_TURN = 0.002
#: most early responses in a row without news, before the next request waits
_MAX_VAIN = 2
#: seconds to wait for all fsyncs, before partitions with complete fsyncs continue
_FSYNC_PATIENCE = 1.0
#: seconds after which a throttled partition is tried again: the throttle may have been lifted
_MAX_HOLD_UP = 1.0

#: errors to expect after a change of leaders or for a new topic, until all brokers know of it
_TRANSIENT = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
_SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class Logs(Protocol):
    """Makes changes of a log durable before they take effect (`barnabas.broker.logs.manager.LogManager`)."""

    async def prepare_truncation(self, opened: PartitionLog, offset: Offset) -> Truncation | None:
        """Compute a truncation of the log `opened` to `offset`, and lower the log's recovery point on disk.

        The log itself does not change. Return the computed truncation; None if it would remove nothing or all
        records. Pass the result to `Follower.truncate_to`.

        Raises:
            KafkaError: the disk failed, or the part of the log before `offset` is damaged.
        """

    async def store_log_start(self, opened: PartitionLog) -> None:
        """Make the log's present start offset durable. Raises KafkaError if the disk fails."""

    def must_be_emptied(self, opened: PartitionLog) -> bool:
        """Whether the log of an incomplete replica must be emptied before the broker fetches records for it.

        Records may be missing between the records of such a log.
        """

    async def note_emptied(self, opened: PartitionLog) -> None:
        """Store durably that the log was emptied. Raises KafkaError if the disk fails."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Objects that the fetchers of a broker share."""

    view: BrokerView
    peers: BrokerClient
    logs: Logs
    #: throttle of the fetched bytes (KIP-73)
    throttle: Throttle


def _is_durable(followed: Followed) -> bool:
    """Whether all records that require an fsync are on disk; True if this broker no longer follows.

    The leader must not learn of records that are not on disk.
    """
    follower = followed.partition.follower(followed.leader_epoch)
    return follower is None or follower.is_durable


def _error(code: int) -> ErrorCode:
    known: ErrorCode | None = ErrorCode._value2member_map_.get(code)  # type: ignore[assignment]
    return ErrorCode.UNKNOWN_SERVER_ERROR if known is None else known


def _results(response: FetchResponse) -> Iterator[tuple[Key, PartitionData]]:
    for topic in response.responses:
        for data in topic.partitions:
            yield (topic.topic_id, data.partition_index), data


class _Flight(NamedTuple):
    """A Fetch request that was sent to the leader, with the future of its response."""

    number: int
    session: FollowerFetchSession
    is_parked: bool
    #: a response before this time of the event loop should have news; 0 if a response without news is usual
    idle_until: float
    reply: asyncio.Future[Any]


#: work that yields what it has to wait for
Waiting: TypeAlias = Generator[Coroutine[Any, Any, object], None, None]


class _Waits:
    """Runs a generator in two parts: without a wait as far as possible, and the rest with waits.

    `run_without_waiting` runs the generator up to its first awaitable, and returns at once. `run` awaits this
    awaitable, and runs the rest of the generator.

    Args:
        work: the generator. It yields each awaitable that must complete before it continues.
    """

    def __init__(self, work: Waiting) -> None:
        self._work = work
        self._awaited: Coroutine[Any, Any, object] | None = None

    def run_without_waiting(self) -> bool:
        """Run the generator up to its first awaitable. Return True if it has ended without one."""
        self._awaited = next(self._work, None)
        return self._awaited is None

    async def run(self) -> None:
        """Run the rest of the generator, and await each awaitable that it yields."""
        awaited, self._awaited = self._awaited, None
        if awaited is not None:
            await awaited
        for awaited in self._work:
            await awaited

    def close(self) -> None:
        """Close the generator, and the awaitable that `run` has not awaited yet."""
        self._work.close()
        if self._awaited is not None:
            self._awaited.close()


class ReplicaFetcher:
    """Copies the partitions that one broker leads. Only the event loop may use it.

    Args:
        leader: id of the leader broker.
        dependencies: objects that all fetchers share.
    """

    def __init__(self, leader: BrokerId, dependencies: Dependencies) -> None:
        self.leader = leader
        self._dependencies = dependencies
        self._loop = asyncio.get_running_loop()
        self._followed: dict[Key, Followed] = {}
        #: partitions that the next request must name
        self._due: dict[Followed, None] = {}
        #: partitions that are still in the session and must be removed from it
        self._unwanted: dict[Key, None] = {}
        self._session = FollowerFetchSession()
        #: this broker's epoch when the session began
        self._broker_epoch = -1
        self._flights: deque[_Flight] = deque()
        self._number = 0
        #: whether a partition is due that does not wait for the running fetch
        self._is_urgent = False
        #: errors of the connection, or of whole requests, in a row
        self._failures = 0
        #: number of early responses in a row without news
        self._vain = 0
        self._pause: asyncio.TimerHandle | None = None
        self._timers: dict[Followed, asyncio.TimerHandle] = {}
        #: truncations and moves of log starts under way
        self._disk_work: dict[asyncio.Task[None], None] = {}
        #: partitions whose log start is being stored
        self._starts: dict[Followed, None] = {}
        self._event = asyncio.Event()
        #: whether the task waits for `_event`, so that a response can be processed when it arrives
        self._is_idle = False
        #: the rest of the processing of a response, after a wait that is the task's
        self._rest: _Waits | None = None
        self._task = start_task(self._run(), f"fetcher of broker {leader}", is_vital=True)

    def __len__(self) -> int:
        """Return the number of copied partitions."""
        return len(self._followed)

    def follow(self, partition: Partition) -> None:
        """Start to copy a partition in its present leader epoch.

        If the partition was copied in an earlier leader epoch, ignore the responses of that epoch. Do nothing
        if it is already copied in the present one.
        """
        followed = Followed(partition)
        known = self._followed.get(followed.key)
        if known is not None:
            if known.leader_epoch == followed.leader_epoch and known.partition is partition:
                return
            self._drop(known)
        self._followed[followed.key] = followed
        self._unwanted.pop(followed.key, None)
        self._resume(followed)  # perhaps after an fsync of records from an earlier epoch

    def unfollow(self, key: Key) -> None:
        """Stop copying a partition."""
        known = self._followed.pop(key, None)
        if known is not None:
            self._drop(known)
            self._leave_out(key)
            self._event.set()

    async def close(self) -> None:
        """Stop copying at once. Responses to requests in flight are dropped."""
        for flight in self._flights:
            flight.reply.cancel()
        tasks = [self._task, *self._disk_work]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for timer in self._timers.values():
            timer.cancel()
        if self._pause is not None:
            self._pause.cancel()
        if self._rest is not None:
            self._rest.close()

    def _is_current(self, followed: Followed) -> bool:
        """Whether the partition is still copied in the same leader epoch. Call this after each await."""
        return self._followed.get(followed.key) is followed

    # --- what is due ---

    def _drop(self, followed: Followed) -> None:
        self._due.pop(followed, None)
        timer = self._timers.pop(followed, None)
        if timer is not None:
            timer.cancel()

    def _leave_out(self, key: Key) -> None:
        if key in self._session.names:
            self._unwanted[key] = None

    def _fetch_soon(self, followed: Followed) -> None:
        """Include the partition in the next fetch. If the leader delays a fetch now, send a second one.

        If the log must be emptied first (`Logs.must_be_emptied`), start a task that does this.
        """
        if self._dependencies.logs.must_be_emptied(followed.partition.log):
            self._set_aside(followed)
            self._begin(self._begin_anew(followed), f"new beginning of {followed!r}")
            return
        self._due[followed] = None
        self._is_urgent = True
        self._event.set()

    def _put_off(self, followed: Followed, error: KafkaError) -> None:
        """Leave a partition out of the requests for a while, because its copying has failed with `error`.

        The pause grows with each failure. If the partition's log accepts no more writes, leave the partition
        out until the broker's next start. Log `error` at the first failure, unless `error` is transient.
        """
        partition = followed.partition
        is_over = partition.unwritable is not None or partition.log.is_offline  # until the next start
        if error.code not in _TRANSIENT and followed.failures == 0:
            log.error(
                "%s cannot be copied from broker %d: %s%s",
                followed.partition.topic_partition,
                self.leader,
                error,
                "" if is_over else "; it is tried again",
            )
        self._set_aside(followed)
        if not is_over:
            self._timers[followed] = self._loop.call_later(
                self._backoff(followed.failures), self._resume, followed
            )
        followed.failures += 1

    def _backoff(self, failures: int) -> float:
        """Return the seconds to wait before the next attempt, after this number of earlier failures."""
        longest = self._dependencies.view.config.replica_fetch_backoff_ms / 1000
        return min(_FIRST_BACKOFF * float(2 ** min(failures, 30)), longest)

    def _set_aside(self, followed: Followed) -> None:
        followed.is_put_off = True
        followed.invalidate_requests()
        self._due.pop(followed, None)
        self._leave_out(followed.key)

    def _resume(self, followed: Followed, _durable: object = None) -> None:
        """Include the partition in the requests again, when all records that require an fsync are on disk.

        If its log accepts no more writes before that, leave the partition out of all later requests.
        """
        self._timers.pop(followed, None)
        if not self._is_current(followed):
            return
        follower = followed.partition.follower(followed.leader_epoch)
        if follower is not None and not follower.is_durable:  # an fsync can also be due again after its end
            self._set_aside(followed)
            if followed.partition.unwritable is None:
                follower.durable().add_done_callback(partial(self._resume, followed))
            return
        followed.is_put_off = False
        self._unwanted.pop(followed.key, None)
        self._fetch_soon(followed)

    # --- requests ---

    async def _run(self) -> None:
        while True:
            self._is_idle = True
            await self._event.wait()
            self._is_idle = False
            self._event.clear()
            try:
                if self._rest is not None:
                    rest, self._rest = self._rest, None
                    await rest.run()
                while self._flights and self._flights[0].reply.done():
                    await _Waits(self._land(self._flights.popleft())).run()
                if self._may_send():
                    self._send()
            except Exception as error:
                self._failed(error)

    def _at_once(self, reply: asyncio.Future[Any]) -> None:
        """Process the response in the finished future `reply` now, and send the next request.

        This saves a switch to the fetcher's task. If the request has failed, or the task is busy, only wake
        the task: it processes the response. If the processing must wait, for example for an fsync, leave the
        rest to the task.
        """
        if reply.exception() is not None or not self._is_idle or self._event.is_set():
            self._event.set()
            return
        try:
            if not self._flights or self._flights[0].reply is not reply:
                self._event.set()
                return
            rest = _Waits(self._land(self._flights.popleft()))
            if not rest.run_without_waiting():
                self._rest = rest
                self._event.set()
            elif self._flights and self._flights[0].reply.done():  # over another connection, and earlier
                self._event.set()
            elif self._may_send():
                self._send()
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Handle an unexpected exception: log it, and continue to copy in a new session after a pause."""
        log.error("copying from broker %d has failed", self.leader, exc_info=error)
        self._lost(error)

    def _may_send(self) -> bool:
        if self._pause is not None:
            return False
        if not self._flights:
            return (
                bool(self._due) or len(self._session.names) > len(self._unwanted) or self._must_end_session()
            )
        return self._is_urgent and len(self._flights) == 1 and self._flights[0].is_parked

    def _must_end_session(self) -> bool:
        """Whether the leader still keeps a fetch session, which a final request must end.

        The caller must first check that this broker needs no partition of the session any more.
        """
        return bool(self._session.names) and self._session.id != 0

    def _send(self) -> None:
        view, session = self._dependencies.view, self._session
        config, broker_epoch = view.config, view.broker_epoch
        self._number += 1
        self._is_urgent = False
        request: FetchRequest | UsualFetch | None = None
        if not self._due and len(session.names) <= len(self._unwanted):
            request = session.final_request(view.node_id, broker_epoch)
            self._restart_session()
        else:
            if session.epoch and broker_epoch != self._broker_epoch:
                self._restart_session()  # the leader counts for the ISR what was fetched in this one
                session = self._session
            self._broker_epoch = broker_epoch
            due = self._pop_due()
            unwanted, self._unwanted = self._unwanted, {}
            if not unwanted:
                client_id = self._dependencies.peers.client_id
                request = session.usual_request(
                    view.node_id, broker_epoch, client_id, self._number, due, config
                )
            if request is None:
                request = session.request(
                    view.node_id,
                    broker_epoch,
                    self._number,
                    due,
                    unwanted,
                    config.replica_fetch_max_bytes,
                )
                request.min_bytes = config.replica_fetch_min_bytes
                request.max_bytes = config.replica_fetch_response_max_bytes
                if request.session_epoch and len(due) <= _MAX_PARKED:
                    request.max_wait_ms = config.replica_fetch_wait_max_ms
        # Asked for each time: a broker that has left and come back has another channel.
        reply = self._dependencies.peers.channel(self.leader, "fetch").submit(
            request,
            timeout_s=(config.replica_socket_timeout_ms + request.max_wait_ms) / 1000,
            max_version=_VERSION,
            then=self._at_once,
        )
        wait = request.max_wait_ms / 1000
        idle_until = self._loop.time() + wait / 2 if wait else 0.0
        self._flights.append(_Flight(self._number, session, wait > 0, idle_until, reply))
        if reply.done():
            self._event.set()

    def _pop_due(self) -> list[Followed]:
        """Return the partitions that the next request must name, and remove them from `_due`.

        A partition is due when it is not in the fetch session yet, or when its position (log end or log
        start) has changed. The result has all due partitions that are in the session, and at most
        `_MAX_NAMED` others. The rest stays due for a later request.
        """
        if len(self._due) == 1:
            taken = list(self._due)
            self._due.clear()
            self._is_urgent = False
            return taken
        known = [followed for followed in self._due if followed.is_in_session]
        unknown = (followed for followed in self._due if not followed.is_in_session)
        taken = [*known, *islice(unknown, _MAX_NAMED)]
        for followed in taken:
            del self._due[followed]
        self._is_urgent = bool(self._due)
        return taken

    def _restart_session(self) -> None:
        """Start a new session with all partitions. Responses to requests in flight are ignored."""
        self._session = FollowerFetchSession()
        self._unwanted.clear()
        for followed in self._followed.values():
            followed.invalidate_requests()
            if not followed.is_put_off:
                self._due[followed] = None

    def _lost(self, reason: object) -> None:
        """Pause after a whole request has failed, and start a new session.

        The pause grows with the number of failures in a row. Log `reason` at the first failure.
        """
        if not self._failures:
            log.info("%d partitions cannot be copied from broker %d: %s", len(self), self.leader, reason)
        self._wait(self._backoff(self._failures))
        self._failures += 1
        self._restart_session()

    def _wait(self, seconds: float) -> None:
        """Send no request for this number of seconds. Do nothing during an earlier pause."""
        if self._pause is None:
            self._pause = self._loop.call_later(seconds, self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        self._event.set()

    # --- replies ---

    def _land(self, flight: _Flight) -> Waiting:
        """Process the response to a Fetch request, or its failure.

        Yield each awaitable that must complete before the processing can continue. Ignore a request of an
        earlier fetch session. If the whole request has failed, start a new session.
        """
        session = flight.session
        if flight.reply.cancelled():
            return
        error = flight.reply.exception()
        if session is not self._session:
            return
        if error is not None:
            if not isinstance(error, ChannelError):
                log.error("a fetch from broker %d has failed", self.leader, exc_info=error)
            self._lost(error)
            return
        response: FetchResponse | UsualResponse = flight.reply.result()
        if response.error_code:
            if response.error_code in _SESSION_ERRORS and not self._failures:
                self._failures = 1
                self._restart_session()
            else:
                self._lost(f"error {response.error_code}")
            return
        if self._failures > 1:
            log.info("copying from broker %d again", self.leader)
        self._failures = 0
        if not session.id:
            session.id = response.session_id
        is_useful = yield from self._process_response(flight.number, response)
        self._note_use(flight, is_useful=is_useful)
        if not session.id and session is self._session:
            self._lost("it keeps no session, which it does for brokers that it knows")

    def _note_use(self, flight: _Flight, *, is_useful: bool) -> None:
        """Delay the next request if the leader keeps sending early responses without partitions.

        A response is early if it arrives before half of the request's maximum wait time. Count consecutive
        early responses that contain none of the copied partitions. After more than `_MAX_VAIN` of them,
        start a pause, in which no request is sent. This method returns at once.

        Any other response resets the count. The response to the first of two requests in flight also resets
        it: the leader answers the first request at once when the second arrives.

        Without the pause, each early response would cause the next request at once, without end.

        Args:
            flight: the request whose response was processed.
            is_useful: whether the response contained one of the copied partitions.
        """
        is_overtaken = bool(self._flights)  # the leader answers a parked fetch when the next one comes
        if is_useful or is_overtaken or self._loop.time() >= flight.idle_until:
            self._vain = 0
            return
        self._vain += 1
        if self._vain > _MAX_VAIN:
            self._wait(self._backoff(self._vain - _MAX_VAIN))

    def _process_response(
        self, number: int, response: FetchResponse | UsualResponse
    ) -> Generator[Coroutine[Any, Any, object], None, bool]:
        """Process the leader's response to the request with this number.

        Yield each awaitable that must complete before the processing can continue. The generator returns
        False if the response contains none of the copied partitions.
        """
        is_useful = False
        began = self._loop.time()
        written: list[Followed] = []
        for key, data in response.results if isinstance(response, UsualResponse) else _results(response):
            followed = self._followed.get(key)
            if followed is None or number < followed.first_requested_in:
                continue
            is_useful = True
            if number < followed.requested_in:
                self._update_bounds(followed, data)
            else:
                self._process_partition(followed, data, written)
            if self._loop.time() - began > _TURN:
                yield asyncio.sleep(0)
                began = self._loop.time()
        if written:
            yield from self._wait_for_fsync(written)
        return is_useful

    def _process_partition(
        self, followed: Followed, data: PartitionData | ReceivedData, written: list[Followed]
    ) -> None:
        """Process the leader's response for one partition: append, truncate, or handle its error.

        If appended records need an fsync, add the partition to `written`. After an error, leave the partition
        out of requests for some time.
        """
        partition = followed.partition
        follower = partition.follower(followed.leader_epoch)
        if follower is None:  # it leads, was deleted, or is in another leader epoch
            self._set_aside(followed)
            return
        if partition.log.log_end_offset != followed.requested_offset:
            self._update_bounds(followed, data)
            return
        try:
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._start_over(followed, data)
            elif data.error_code:
                raise KafkaError(_error(data.error_code))
            elif data.diverging_epoch.epoch >= 0:
                self._truncate(followed, follower, data)
            else:
                if data.records:
                    self._dependencies.throttle.record(partition.topic_partition, len(data.records))
                    self._append(followed, follower, data.records)  # type: ignore[arg-type]
                    partition.traffic.replication_bytes_in += len(data.records)
                    if not follower.is_durable:
                        written.append(followed)
                follower.follow_watermark(data.high_watermark)
                self._follow_log_start(followed, data.log_start_offset)
                followed.failures = 0
        except KafkaError as error:
            self._put_off(followed, error)
            return
        self._tell_if_moved(followed)
        self._hold_up(followed)

    def _update_bounds(self, followed: Followed, data: PartitionData | ReceivedData) -> None:
        """Apply only the leader's high watermark and log start offset from an outdated response.

        A response is outdated if a later request has named the partition, or if this log's end has changed.
        Its records are then useless. The two offsets are still valid, because the logs do not diverge. The
        leader sends each offset only once, when it changes.

        Do nothing if the response has an error or a divergence, or if this broker no longer follows.
        """
        follower = followed.partition.follower(followed.leader_epoch)
        if follower is not None and not data.error_code and data.diverging_epoch.epoch < 0:
            follower.follow_watermark(data.high_watermark)
            self._follow_log_start(followed, data.log_start_offset)
            self._tell_if_moved(followed)

    def _tell_if_moved(self, followed: Followed) -> None:
        """Name the partition in the next request if the leader does not know its log's end or start.

        This log's own retention may have moved the start. Without its report, the leader could not add this
        replica to the ISR.
        """
        if followed.differs_from_request and not followed.is_put_off:
            self._due[followed] = None

    def _append(self, followed: Followed, follower: Follower, records: Buffer) -> None:
        try:
            follower.append(records, followed.leader_epoch)
        except KafkaError as error:
            if error.code == ErrorCode.KAFKA_STORAGE_ERROR and not is_busy(error.__cause__):
                followed.partition.leave_in_sync()  # or the leader's writers wait until it lags
            raise

    def _hold_up(self, followed: Followed) -> None:
        """If the throttle allows no more bytes of a partition, leave it out of requests for some time.

        This time is at most `_MAX_HOLD_UP` seconds. The throttle does not apply to a replica in the ISR.
        """
        partition, throttle = followed.partition, self._dependencies.throttle
        if not throttle.is_idle and not throttle.allows(
            partition.topic_partition, in_sync=self._dependencies.view.node_id in partition.state.isr
        ):
            self._set_aside(followed)
            pause = min(throttle.delay(), _MAX_HOLD_UP)
            self._timers[followed] = self._loop.call_later(pause, self._go_on, followed)

    def _go_on(self, followed: Followed) -> None:
        self._timers.pop(followed, None)
        if self._is_current(followed):
            self._hold_up(followed)
            if followed not in self._timers:
                self._resume(followed)

    def _truncate(self, followed: Followed, follower: Follower, data: PartitionData | ReceivedData) -> None:
        partition_log = followed.partition.log
        epoch, diverging = partition_log.latest_epoch, data.diverging_epoch
        offset = follower.offset_to_truncate_to(diverging.epoch, diverging.end_offset)
        if offset < partition_log.high_watermark:
            log.warning(
                "%s: its leader's log of epoch %d ends at %d: truncating to %d, below the high watermark %d",
                followed.partition.topic_partition,
                diverging.epoch,
                diverging.end_offset,
                offset,
                partition_log.high_watermark,
            )
        if offset < partition_log.log_end_offset:
            self._cut(followed, offset, start_over=False)
            return
        follower.truncate_to(offset)
        if partition_log.latest_epoch == epoch:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"epoch {diverging.epoch} ends at {diverging.end_offset}, which this log cannot follow",
            )
        self._resume(followed)

    def _start_over(self, followed: Followed, data: PartitionData | ReceivedData) -> None:
        """Remove all records, and begin again at the leader's log start offset.

        Call this if the leader answers OFFSET_OUT_OF_RANGE because its log starts after the end of this log.

        The disk work runs in a task: this method returns at once.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE, the response has no log start offset, or this log is not empty
                and the leader's log starts at or before the end of this log.
        """
        partition_log = followed.partition.log
        start = data.log_start_offset
        is_empty = partition_log.log_start_offset == partition_log.log_end_offset
        if start < 0 or (start <= partition_log.log_end_offset and not is_empty):
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        log.warning(
            "%s: broker %d has no records from offset %d on: starting at offset %d",
            followed.partition.topic_partition,
            self.leader,
            partition_log.log_end_offset,
            start,
        )
        self._cut(followed, start, start_over=True)

    def _cut(self, followed: Followed, offset: Offset, *, start_over: bool) -> None:
        """Truncate a log to `offset` in a task, and fetch the partition again when that is durable.

        If `start_over` is true, remove all records: the empty log then begins at `offset`.
        """
        self._set_aside(followed)
        self._begin(self._cut_off(followed, offset, start_over), f"truncation of {followed!r}")

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = start_task(work, name)
        self._disk_work[task] = None
        task.add_done_callback(self._disk_work.pop)

    async def _cut_off(self, followed: Followed, offset: Offset, start_over: bool) -> None:
        partition_log = followed.partition.log
        try:
            lowest = min(offset, partition_log.log_start_offset) if start_over else offset
            truncation = await self._dependencies.logs.prepare_truncation(partition_log, lowest)
            follower = followed.partition.follower(followed.leader_epoch)
            if follower is None or not self._is_current(followed):
                return  # another leader or epoch decides now on the records to cut off
            if start_over:
                follower.start_at(offset)
            else:
                follower.truncate_to(offset, truncation)
            await follower.durable()
        except KafkaError as error:
            if self._is_current(followed):
                self._put_off(followed, error)
            return
        finally:
            # The recovery point is lower, perhaps in a later epoch. A leader's high watermark waits for it.
            followed.partition.flush_if_due()
        self._resume(followed)

    async def _begin_anew(self, followed: Followed) -> None:
        """Empty the log of an incomplete replica, and then fetch from offset 0.

        Records may be missing in such a log. A fetch from the log's end would tell the leader that this
        replica has all earlier records. If the leader's log starts after 0, the first response says where.
        """
        partition_log = followed.partition.log
        try:
            await self._dependencies.logs.prepare_truncation(partition_log, 0)
            follower = followed.partition.follower(followed.leader_epoch)
            if follower is None or not self._is_current(followed):
                return
            follower.start_at(0)
            await follower.durable()
            await self._dependencies.logs.note_emptied(partition_log)
        except KafkaError as error:
            if self._is_current(followed):
                self._put_off(followed, error)
            return
        finally:
            followed.partition.flush_if_due()
        self._resume(followed)

    def _follow_log_start(self, followed: Followed, start: Offset) -> None:
        """Advance a log's start offset to the leader's log start offset `start`.

        Advance it at most to this log's high watermark.

        The start offset changes in memory at once, even if the disk fails. If this replica becomes the
        leader, it must not have the deleted records.
        """
        partition_log = followed.partition.log
        before = partition_log.log_start_offset
        start = min(start, partition_log.high_watermark)
        if start > before:
            try:
                partition_log.advance_log_start(start)
            except KafkaError:  # the log is offline: it never leads
                return
            if partition_log.stored_start is None:
                partition_log.stored_start = before
        if partition_log.stored_start is not None and followed not in self._starts:
            self._starts[followed] = None
            self._begin(self._store_log_start(followed), f"log start of {followed!r}")

    async def _store_log_start(self, followed: Followed) -> None:
        """Store a log's start offset on disk, and then name the partition in the next fetch.

        This fetch reports the offset to the leader. If the disk fails, try again after a pause. Stop if the
        partition is no longer copied, or if the log accepts no more writes.

        DeleteRecords waits for the report. If DeleteRecords did not wait, deleted records would return when
        this replica led after a crash.
        """
        partition, failures = followed.partition, 0
        partition_log = partition.log
        try:
            while partition_log.stored_start is not None and self._is_current(followed):
                start = partition_log.log_start_offset
                try:
                    await self._dependencies.logs.store_log_start(partition_log)
                except KafkaError as error:  # try again: the leader sends its log start only once
                    if partition.unwritable is not None or partition_log.is_offline:
                        break
                    if not failures:
                        log.error("%s: cannot store its first offset: %s", partition.topic_partition, error)
                    await asyncio.sleep(self._backoff(failures))
                    failures += 1
                else:
                    partition_log.stored_start = None if partition_log.log_start_offset <= start else start
                    if self._is_current(followed) and not followed.is_put_off:
                        self._fetch_soon(followed)
        finally:
            del self._starts[followed]

    def _wait_for_fsync(self, written: list[Followed]) -> Waiting:
        """Wait until the new records of the partitions in `written` are on disk, if they need an fsync.

        The generator yields one awaitable, which takes at most `_FSYNC_PATIENCE` seconds; nothing if no
        record needs an fsync. The wait is before the next fetch, because the fetch tells the leader that this
        replica has the records. If the fsync of a log is not complete after the wait, `_resume` leaves its
        partition out of the requests until then. The other partitions do not wait longer.
        """
        pending: dict[asyncio.Future[None], Followed] = {}
        for followed in written:
            follower = followed.partition.follower(followed.leader_epoch)
            if follower is not None and not follower.is_durable:
                pending[follower.durable()] = followed
        if not pending:
            return
        yield asyncio.wait(pending, timeout=_FSYNC_PATIENCE)
        for followed in pending.values():
            if not _is_durable(followed) and not followed.is_put_off:
                self._resume(followed)
