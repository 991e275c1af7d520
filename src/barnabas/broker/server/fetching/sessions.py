"""Fetch sessions (KIP-227): the broker remembers a client's partitions, and the client sends only changes.

The numbers of sessions and of their partitions have limits. When all sessions are in use, a new session
replaces a session that has had no request for two minutes. If there is no such session, the response has
session id 0, and the client fetches without a session. Each follower has one session, which no client can
replace.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from random import Random
from typing import TYPE_CHECKING, Protocol

from barnabas.base.environment.clock import Clock
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import BrokerId, TopicKey
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData
from barnabas.kafka.security.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from barnabas.broker.replication.fetch_layout import Position
    from barnabas.broker.replication.manager import ReplicaManager
    from barnabas.broker.replication.partition import Partition
    from barnabas.broker.replication.purgatory import Watcher

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_LAST_EPOCH = 2**31 - 1
#: number of a request's partitions that `advance_in_steps` handles in one step
_NOTED_A_STEP = 200
_OVER = object()

#: How long a session must have been idle before another may replace it, in seconds.
MIN_EVICTION_S = 120

#: How many partitions the sessions have at most, together: each takes about 350 bytes.
MAX_PARTITIONS = 400_000


class Parked(Protocol):
    """A fetch that waits for records."""

    def expire(self) -> None:
        """Answer now. Do nothing if the fetch was answered."""


class TargetListener(Protocol):
    """Receives notifications when the partitions of fetch targets change."""

    def on_progress(self, target: FetchTarget, new_bytes: int) -> None:
        """Handle new records of a target's partition, or another change: a waiting fetch may be answered.

        `new_bytes` is the size of the new records in bytes. It is 0 for another change, for example of the
        leadership, or if the size is unknown (`Watcher.progressed`).
        """

    def on_change(self, target: FetchTarget) -> None:
        """Handle a change that is no reason to respond now, for example a follower's new high watermark.

        The next response, which has another reason, must contain the change of `target`.
        """


class FetchTarget:
    """A partition in a fetch: the position that the client requests, and the offsets that it last received.

    Between `watch` and `unwatch`, the target notifies its listener when the partition changes.
    """

    __slots__ = (
        "current_leader_epoch",
        "high_watermark",
        "index",
        "key",
        "last_fetched_epoch",
        "listener",
        "log_start_offset",
        "max_bytes",
        "offset",
        "partition",
        "topic",
    )

    def __init__(self, topic: TopicKey, wanted: FetchPartition) -> None:
        self.topic = topic
        index = self.index = wanted.partition
        self.key = (topic, index)
        self.high_watermark = -1
        self.log_start_offset = -1
        self.partition: Partition | None = None
        self.listener: TargetListener | None = None
        self.update(wanted)

    def update(self, wanted: FetchPartition) -> None:
        """Take over the position, the size limit and the epochs that the client requests."""
        self.offset = wanted.fetch_offset
        self.max_bytes = max(0, wanted.partition_max_bytes)
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch

    def find_partition(self, replicas: ReplicaManager) -> Partition:
        """Return the partition.

        Look the partition up at the first call, and again after it became unavailable.

        Raises:
            KafkaError: this broker does not have the partition, or cannot serve it (`ReplicaManager.find`).
        """
        partition = self.partition
        if partition is None or partition.unavailable is not None:
            if partition is not None:
                self._leave(partition)
                self.partition = None
            partition = self.partition = replicas.find(self.topic, self.index)
            if self.listener is not None:
                self._enter(partition)
        return partition

    def watch(self, listener: TargetListener) -> None:
        """Start to notify `listener` of changes to the partition."""
        self.listener = listener
        if self.partition is not None:
            self._enter(self.partition)

    def unwatch(self) -> None:
        """Stop notifying the listener."""
        self.listener = None
        if self.partition is not None:
            self._leave(self.partition)

    def _enter(self, partition: Partition) -> None:
        partition.watchers[self] = None

    def _leave(self, partition: Partition) -> None:
        partition.watchers.pop(self, None)

    def progressed(self, new_bytes: int) -> None:
        """Notify the listener of new records or another change of the partition (`Watcher`).

        `new_bytes` is the size of the new records; 0 for another change.
        """
        if self.listener is not None:
            self.listener.on_progress(self, new_bytes)

    def has_changed(self, data: PartitionData) -> bool:
        """Whether `data` has anything new for the client since the previous call.

        These count as new: records, an error, a diverging epoch, a preferred read replica, a changed high
        watermark, and a changed log start offset. The call stores the two offsets for the next comparison.
        The data after an error always counts as new.
        """
        if data.error_code:
            # Told again after every error, whatever the numbers then are.
            self.high_watermark = -1
            return True
        changed = data.high_watermark != self.high_watermark or data.log_start_offset != self.log_start_offset
        self.high_watermark = data.high_watermark
        self.log_start_offset = data.log_start_offset
        return (
            changed
            or bool(data.records)
            or data.diverging_epoch.epoch >= 0
            or data.preferred_read_replica >= 0
        )


class ReplicaTarget(FetchTarget):
    """A partition in a follower's fetch, which reads up to the log end instead of the high watermark.

    The next response contains a new high watermark, but a new high watermark alone causes no response.
    A response for it would cost two fetches for each append (KAFKA-9731).
    """

    __slots__ = ("is_new", "replica_start")

    def update(self, wanted: FetchPartition) -> None:
        super().update(wanted)
        #: where the follower's log starts
        self.replica_start = wanted.log_start_offset
        #: whether the follower's position has not been reported to the partition yet
        self.is_new = True

    def _enter(self, partition: Partition) -> None:
        partition.watchers[self] = None
        partition.followers[self] = None

    def _leave(self, partition: Partition) -> None:
        partition.watchers.pop(self, None)
        partition.followers.pop(self, None)

    def progressed(self, new_bytes: int) -> None:
        if self.listener is None:
            return
        if new_bytes:
            self.listener.on_change(self)
        else:
            self.listener.on_progress(self, 0)

    def appended(self, new_bytes: int) -> None:
        """Notify the listener that the leader has appended `new_bytes` bytes (`AppendListener`)."""
        if self.listener is not None:
            self.listener.on_progress(self, new_bytes)


def requested(request: FetchRequest, target: type[FetchTarget] = FetchTarget) -> Iterable[FetchTarget]:
    """Yield a new target for each partition of a request, in the request's order."""
    for topic in request.topics:
        key: TopicKey = topic.topic or topic.topic_id
        for wanted in topic.partitions:
            yield target(key, wanted)


class FetchSession:
    """A client's fetch session. The cost of a fetch grows only with the number of changed partitions.

    `ready` has the partitions that may have something new for the client, in the order of the reads. A
    partition moves to the end after its records were sent. So no partition waits behind a busy one.
    """

    #: class of the session's targets
    target: type[FetchTarget] = FetchTarget

    def __init__(
        self,
        session_id: int,
        request: FetchRequest,
        uses_topic_ids: bool,
        targets: Iterable[FetchTarget] = (),
    ) -> None:
        """Create a session with the partitions of a request, and watch these partitions.

        Args:
            session_id: id of the session.
            request: the Fetch request that opens the session.
            uses_topic_ids: whether the version of the request names topics by their ids.
            targets: targets of the request's partitions, if the caller has already created them.
        """
        self.session_id = session_id
        #: the epoch the next request must have
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.targets: dict[tuple[TopicKey, int], FetchTarget] = {
            t.key: t for t in targets or requested(request, self.target)
        }
        self.ready: dict[FetchTarget, None] = dict.fromkeys(self.targets.values())
        #: the monotonic time of the last request
        self.used_at = 0.0
        self.owner = ANONYMOUS
        #: the fetches that wait, of which there is rarely more than one
        self._fetches: list[TargetListener] = []
        self._is_committed = False
        for target in self.ready:
            target.watch(self)

    def advance(self, request: FetchRequest) -> None:
        """Apply the changes of an incremental request to the session's partitions."""
        for _ in self.advance_in_steps(request):
            pass

    def advance_in_steps(self, request: FetchRequest) -> Iterator[None]:
        """Apply the changes of an incremental request to the session's partitions, in steps.

        Yield between the steps, so that the event loop can serve other requests. The caller must not continue
        the iteration if the session was closed meanwhile.
        """
        self.epoch = self.epoch + 1 if self.epoch < _LAST_EPOCH else 1
        forgotten = dict.fromkeys(
            (topic.topic or topic.topic_id, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        )
        for partition in forgotten:
            target = self.targets.pop(partition, None)
            if target is not None:
                target.unwatch()
                self.ready.pop(target, None)
        yield
        noted = 0
        for topic in request.topics:
            key: TopicKey = topic.topic or topic.topic_id
            for wanted in topic.partitions:
                noted += 1
                if noted % _NOTED_A_STEP == 0:
                    yield
                partition = key, wanted.partition
                if partition in forgotten:  # as in Kafka, also if the request adds it
                    continue
                target = self.targets.get(partition)
                if target is None:
                    target = self.target(key, wanted)
                    target.watch(self)
                    self.targets[target.key] = target
                else:
                    target.update(wanted)
                self.on_progress(target, 0)

    def to_read(self, *, committed: bool) -> list[FetchTarget]:
        """Return the targets that a fetch must read, in the order of the reads.

        These are the targets in `ready`. If `committed` has changed since the last call, these are all
        targets.

        Args:
            committed: whether the fetch reads only up to the last stable offset.
        """
        if committed is not self._is_committed:  # what was read to its end may go on
            self._is_committed = committed
            self.ready = dict.fromkeys(self.targets.values())
        return list(self.ready)

    def join(self, fetch: TargetListener) -> None:
        """Notify `fetch` when partitions of the session change, until `leave` is called."""
        self._fetches.append(fetch)

    def leave(self, fetch: TargetListener) -> None:
        """Stop notifying `fetch`, because it has its response or its client is gone."""
        self._fetches.remove(fetch)

    def on_progress(self, target: FetchTarget, new_bytes: int) -> None:
        """Add `target` to `ready`, and notify the waiting fetches of its new records or change.

        `new_bytes` is the size of the new records; 0 for another change.
        """
        self.ready[target] = None
        for fetch in self._fetches:
            fetch.on_progress(target, new_bytes)

    def on_change(self, target: FetchTarget) -> None:
        """Add `target` to `ready`, and notify the waiting fetches of its change."""
        self.ready[target] = None
        for fetch in self._fetches:
            fetch.on_change(target)

    def remove_ready(self, target: FetchTarget) -> None:
        """Remove `target` from `ready`, because the client has all records of the partition.

        The next change of the partition adds the target again.
        """
        self.ready.pop(target, None)

    def move_to_end(self, target: FetchTarget) -> None:
        """Move `target` to the end of `ready`, because its records were sent."""
        if target in self.ready:
            del self.ready[target]
            self.ready[target] = None

    def close(self) -> None:
        """Stop watching all partitions."""
        for target in self.targets.values():
            target.unwatch()


class ReplicaSession(FetchSession):
    """A follower's fetch session, for the partitions that this broker leads.

    Attributes:
        parked: the delayed fetch, which waits for appends; None if there is none.
    """

    target = ReplicaTarget
    parked: Parked | None = None
    #: session epoch up to which the broker answers fetches without delay
    _hurried = 0

    @property
    def is_hurried(self) -> bool:
        """Whether the broker must answer the current fetch without delay (`hurry`)."""
        return self.epoch <= self._hurried

    def may_continue(self, epoch: int) -> bool:
        """Whether `continue_at` can apply a request with this session epoch.

        All of these conditions must be true:

        - The request has the session's next epoch.
        - The broker need not answer the request without delay (`hurry`).
        - No other fetch of the session waits for records.
        - The session uses topic ids, and has partitions.
        """
        return (
            epoch == self.epoch < _LAST_EPOCH
            and epoch >= self._hurried
            and not self._fetches
            and self.uses_topic_ids
            and bool(self.targets)
        )

    def continue_at(self, positions: Iterable[Position]) -> None:
        """Apply the changes of an incremental request to the session, and advance the session's epoch.

        Each item of `positions` has the new position of a partition that the session already contains.
        """
        self.epoch += 1
        for topic, index, leader_epoch, offset, last_epoch, start, max_bytes in positions:
            target: ReplicaTarget = self.targets[topic, index]  # type: ignore[assignment]
            target.current_leader_epoch = leader_epoch
            target.offset = offset
            target.last_fetched_epoch = last_epoch
            target.replica_start = start
            target.max_bytes = max(0, max_bytes)
            target.is_new = True
            self.ready[target] = None

    def hurry(self, fetches: int) -> None:
        """Answer the delayed fetch now, and the next `fetches` fetches of the follower without delay."""
        self._hurried = self.epoch + fetches
        self.unpark()

    def unpark(self) -> None:
        """Answer the delayed fetch now, if there is one.

        The follower's next fetch can add partitions to the session. The response to the delayed fetch must
        not contain the added partitions, because the delayed fetch did not request them.
        """
        if self.parked is not None:
            self.parked.expire()
            self.parked = None


class FetchSessions:
    """Creates and finds the fetch sessions of clients and followers, and limits their number.

    Args:
        slots: largest number of clients' sessions.
        clock: measures the time since the last request of a session.
        rng: generates session ids.
    """

    def __init__(self, slots: int, clock: Clock, rng: Random) -> None:
        self._slots = slots
        self._clock = clock
        self._rng = rng
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        #: number of partitions of all clients' sessions and kept fetches
        self.partitions = 0
        #: the sessions of followers, one for each follower
        self._of_replicas: dict[BrokerId, ReplicaSession] = {}
        #: listeners that each fetch of a follower notifies
        self.watchers: dict[Watcher, None] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def resolve(
        self,
        request: FetchRequest,
        uses_topic_ids: bool,
        owner: Principal = ANONYMOUS,
        targets: Iterable[FetchTarget] = (),
    ) -> FetchSession | None:
        """Return the session that `request` opens or continues; None if the fetch has no session.

        The session epoch of the request decides:

        - Initial epoch: close the session with the request's session id, if any. If the request has topics,
          open a session. Return None if it has no topics, or if there is no room for another session.
        - Final epoch: close the session with the request's session id, if any, and return None.
        - Any other epoch: apply the changes in the request to the session with the request's session id.

        Args:
            request: the client's Fetch request.
            uses_topic_ids: whether the version of the request names topics by their ids.
            owner: principal of the client; a session is visible only to its owner.
            targets: targets of the request's partitions, if the caller has already created them.

        Raises:
            KafkaError: FETCH_SESSION_ID_NOT_FOUND, `owner` has no such session, or the session has too many
                partitions now; INVALID_FETCH_SESSION_EPOCH, the request does not have the session's next
                epoch; FETCH_SESSION_TOPIC_ID_ERROR, only one of request and session uses topic ids.
        """
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if self._of(request.session_id, owner) is not None:
                self._drop(request.session_id)
            if request.session_epoch == FINAL_EPOCH or not request.topics:
                return None
            session = self._open(request, uses_topic_ids, targets)
            if session is not None:
                session.owner = owner
            return session
        session = self.find(request, uses_topic_ids, owner)
        for _ in self.advance(session, request):
            pass
        return session

    def find(self, request: FetchRequest, uses_topic_ids: bool, owner: Principal = ANONYMOUS) -> FetchSession:
        """Return the session of an incremental request. The caller must then call `advance`.

        Raises:
            KafkaError: FETCH_SESSION_ID_NOT_FOUND, `owner` has no such session; INVALID_FETCH_SESSION_EPOCH,
                the request does not have the session's next epoch; FETCH_SESSION_TOPIC_ID_ERROR, only one of
                request and session uses topic ids.
        """
        session = self._of(request.session_id, owner)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != session.epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if uses_topic_ids != session.uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return session

    def advance(self, session: FetchSession, request: FetchRequest) -> Iterator[None]:
        """Apply the changes of an incremental request to its session, in steps.

        Yield between the steps, so that the event loop can serve other requests.

        Raises:
            KafkaError: FETCH_SESSION_ID_NOT_FOUND, the session was closed meanwhile, or has too many
                partitions now.
        """
        self._touch(session)
        steps = session.advance_in_steps(request)
        while True:
            before = len(session.targets)
            is_over = next(steps, _OVER) is _OVER
            self.partitions += len(session.targets) - before
            if self.partitions > MAX_PARTITIONS:
                self._drop(session.session_id)  # the client starts again, and continues without a session
            elif is_over:
                return
            else:
                yield
            if self._sessions.get(session.session_id) is not session:
                raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def _of(self, session_id: int, owner: Principal) -> FetchSession | None:
        session = self._sessions.get(session_id)
        return session if session is not None and session.owner == owner else None

    def resolve_replica(
        self,
        request: FetchRequest,
        uses_topic_ids: bool,
        replica: BrokerId,
        targets: Iterable[FetchTarget] = (),
    ) -> ReplicaSession | None:
        """Return the session that a follower's request opens or continues; None if the fetch has no session.

        Notify all `watchers` of this object of the fetch. The session epoch of the request decides:

        - Initial epoch: close the follower's session, if any. If the request has topics, open a session. If
          not, return None.
        - Final epoch: close the follower's session, if any, and return None.
        - Any other epoch: apply the changes in the request to the follower's session.

        If a session that this method closes or changes has a delayed fetch, first answer the delayed fetch.

        Args:
            request: the follower's Fetch request.
            uses_topic_ids: whether the version of the request names topics by their ids.
            replica: broker id of the follower.
            targets: targets of the request's partitions, if the caller has already created them.

        Raises:
            KafkaError: FETCH_SESSION_ID_NOT_FOUND, the follower has no such session, or the session has too
                many partitions now; INVALID_FETCH_SESSION_EPOCH, the request does not have the session's next
                epoch; FETCH_SESSION_TOPIC_ID_ERROR, only one of request and session uses topic ids.
        """
        self.note_fetch()
        session = self._of_replicas.get(replica)
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session is not None:
                self._close_replica(replica)
            if request.session_epoch == FINAL_EPOCH or not request.topics:
                return None
            session = ReplicaSession(self._new_id(), request, uses_topic_ids, targets)
            self._of_replicas[replica] = session
            return session
        if session is None or session.session_id != request.session_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != session.epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if uses_topic_ids != session.uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.unpark()
        session.advance(request)
        if len(session.targets) > MAX_PARTITIONS:
            self._close_replica(replica)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return session

    def note_fetch(self) -> None:
        """Tell all `watchers` of this object that a follower has sent a fetch.

        For example, `ReadIndex` is a watcher: fetches of followers prove that this broker is still the
        leader. A watcher only records the call, and acts in a later turn of the event loop.
        """
        for watcher in self.watchers:
            watcher.progressed(0)

    def of_replica(self, replica: BrokerId) -> ReplicaSession | None:
        """Return the session of a follower; None if it has no session."""
        return self._of_replicas.get(replica)

    def reserve(self, partitions: int) -> bool:
        """Count the partitions of a kept fetch. Return False, and count nothing, if there are too many.

        A kept fetch is a request without a session that the broker remembers while the client repeats it
        (`RepeatedFetches`). All clients' sessions and kept fetches together have at most `MAX_PARTITIONS`
        partitions.

        Args:
            partitions: number of partitions in the fetch.
        """
        if self.partitions + partitions > MAX_PARTITIONS:
            return False
        self.partitions += partitions
        return True

    def release(self, partitions: int) -> None:
        """Subtract the partitions of a kept fetch from the total, because the broker has dropped the fetch.

        Args:
            partitions: the number that `reserve` has counted for this fetch.
        """
        self.partitions -= partitions

    def drop(self, session: FetchSession) -> None:
        """Remove a session whose id no response has contained, so that the client does not know it."""
        self._drop(session.session_id)

    def _close_replica(self, replica: BrokerId) -> None:
        session = self._of_replicas.pop(replica)
        session.unpark()
        session.close()

    def _open(
        self, request: FetchRequest, uses_topic_ids: bool, targets: Iterable[FetchTarget]
    ) -> FetchSession | None:
        if len(self._sessions) >= self._slots and not self._evict():
            return None
        asked = sum(len(topic.partitions) for topic in request.topics)
        while self.partitions + asked > MAX_PARTITIONS:
            if not self._evict():
                return None
        session = FetchSession(self._new_id(), request, uses_topic_ids, targets)
        self._sessions[session.session_id] = session
        self.partitions += len(session.targets)
        self._touch(session)
        return session

    def _evict(self) -> bool:
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if self._clock.monotonic() - oldest.used_at <= MIN_EVICTION_S:
            return False
        self._drop(oldest.session_id)
        return True

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= len(session.targets)
            session.close()

    def _touch(self, session: FetchSession) -> None:
        session.used_at = self._clock.monotonic()
        self._sessions.move_to_end(session.session_id)

    def _new_id(self) -> int:
        while True:
            candidate = self._rng.randint(1, 2**31 - 1)
            if candidate not in self._sessions and all(
                session.session_id != candidate for session in self._of_replicas.values()
            ):
                return candidate
