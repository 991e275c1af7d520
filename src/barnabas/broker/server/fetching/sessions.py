"""Fetch sessions (KIP-227): the broker remembers a client's partitions, and the client sends only changes.

The numbers of sessions and of their partitions have limits. When all sessions are in use, a new one replaces
a session without requests for two minutes. If there is none, session id 0 tells the client to fetch without a
session. Each follower has one session, which no client can replace.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from random import Random
from typing import TYPE_CHECKING, Protocol

from barnabas.base.environment.clock import Clock
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import BrokerId, TopicKey
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, PartitionData
from barnabas.kafka.security.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from barnabas.broker.replication.manager import ReplicaManager
    from barnabas.broker.replication.partition import Partition
    from barnabas.broker.replication.purgatory import DelayedOperation, Watcher

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_LAST_EPOCH = 2**31 - 1
#: how many of the partitions that a request names are noted in one step
_NOTED_A_STEP = 200
_OVER = object()

#: How long a session must have been idle before another may replace it, in milliseconds.
MIN_EVICTION_MS = 120_000

#: How many partitions the sessions have at most, together: each takes about 350 bytes.
MAX_PARTITIONS = 400_000


class NewsListener(Protocol):
    """Receives notifications about the partitions of its targets."""

    def has_news(self, target: FetchTarget, new_bytes: int) -> None:
        """A target's partition has new records to read (`Watcher.progressed`)."""

    def has_changed(self, target: FetchTarget) -> None:
        """The next response must contain a change of `target`; no earlier response is necessary."""


class FetchTarget:
    """One partition as a client requested it, with the state that the broker last sent.

    It watches its partition from `watch` to `unwatch`, once the partition was found.
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
        self.listener: NewsListener | None = None
        self.want(wanted)

    def want(self, wanted: FetchPartition) -> None:
        """Update the position that the client requests."""
        self.offset = wanted.fetch_offset
        self.max_bytes = max(0, wanted.partition_max_bytes)
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch

    def find_partition(self, replicas: ReplicaManager) -> Partition:
        """Return the partition. It is looked up again only after its topic was deleted.

        Raises:
            KafkaError: as `ReplicaManager.find`.
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

    def watch(self, listener: NewsListener) -> None:
        """Start to notify `listener` of changes to the partition."""
        self.listener = listener
        if self.partition is not None:
            self._enter(self.partition)

    def unwatch(self) -> None:
        """Stop the notifications of `watch`."""
        self.listener = None
        if self.partition is not None:
            self._leave(self.partition)

    def _enter(self, partition: Partition) -> None:
        partition.watchers[self] = None

    def _leave(self, partition: Partition) -> None:
        partition.watchers.pop(self, None)

    def progressed(self, new_bytes: int) -> None:
        """Handle new records or a change of the partition (`Watcher`)."""
        if self.listener is not None:
            self.listener.has_news(self, new_bytes)

    def is_news(self, data: PartitionData) -> bool:
        """Whether `data` has anything new for the client. If it has, the target then treats it as sent."""
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
    """One partition of a follower's session: it is read up to the log end, beyond the high watermark.

    The next response contains a new high watermark, but a new high watermark alone causes no response.
    Otherwise each append would cost two fetches (KAFKA-9731).
    """

    __slots__ = ("is_new", "replica_start")

    def want(self, wanted: FetchPartition) -> None:
        super().want(wanted)
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
            self.listener.has_changed(self)
        else:
            self.listener.has_news(self, 0)

    def appended(self, new_bytes: int) -> None:
        """Handle an append of this number of bytes by the leader (`AppendListener`)."""
        if self.listener is not None:
            self.listener.has_news(self, new_bytes)


def requested(request: FetchRequest, target: type[FetchTarget] = FetchTarget) -> Iterable[FetchTarget]:
    """Yield the partitions of a request, in its order."""
    for topic in request.topics:
        key: TopicKey = topic.topic or topic.topic_id
        for wanted in topic.partitions:
            yield target(key, wanted)


class FetchSession:
    """One client's fetch session. The cost of a fetch grows with the number of changed partitions only.

    `ready` has the partitions that may have something new for the client, in the order of the reads. A
    partition moves to the end after its records were sent, so that every partition has its turn.
    """

    #: what a partition of the session is
    target: type[FetchTarget] = FetchTarget

    def __init__(
        self,
        session_id: int,
        request: FetchRequest,
        uses_topic_ids: bool,
        targets: Iterable[FetchTarget] = (),
    ) -> None:
        """Create a session.

        `targets` are the partitions that the request names, if the caller has already made them.
        """
        self.session_id = session_id
        #: the epoch the next request must have
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.targets: dict[tuple[TopicKey, int], FetchTarget] = {
            t.key: t for t in targets or requested(request, self.target)
        }
        self.ready: dict[FetchTarget, None] = dict.fromkeys(self.targets.values())
        self.used_at_ms = 0
        self.owner = ANONYMOUS
        #: the fetches that wait, of which there is rarely more than one
        self._fetches: list[NewsListener] = []
        self._is_committed = False
        for target in self.ready:
            target.watch(self)

    def advance(self, request: FetchRequest) -> None:
        """Apply the changes of an incremental request."""
        for _ in self.advance_in_steps(request):
            pass

    def advance_in_steps(self, request: FetchRequest) -> Iterator[None]:
        """Apply the changes of an incremental request, in steps. Stop if the session is closed."""
        self.epoch = self.epoch + 1 if self.epoch < _LAST_EPOCH else 1
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                target = self.targets.pop((forgotten.topic or forgotten.topic_id, index), None)
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
                target = self.targets.get((key, wanted.partition))
                if target is None:
                    target = self.target(key, wanted)
                    target.watch(self)
                    self.targets[target.key] = target
                else:
                    target.want(wanted)
                self.has_news(target, 0)

    def to_read(self, *, committed: bool) -> list[FetchTarget]:
        """Return the targets that a fetch must read, in this order.

        Args:
            committed: whether the fetch reads only up to the last stable offset.
        """
        if committed is not self._is_committed:  # what was read to its end may go on
            self._is_committed = committed
            self.ready = dict.fromkeys(self.targets.values())
        return list(self.ready)

    def join(self, fetch: NewsListener) -> None:
        """Notify a fetch of changes until it calls `leave`."""
        self._fetches.append(fetch)

    def leave(self, fetch: NewsListener) -> None:
        """End the notifications of a fetch: it has its response, or its client is gone."""
        self._fetches.remove(fetch)

    def has_news(self, target: FetchTarget, new_bytes: int) -> None:
        """Add `target` to those to read, because it has new records, and notify waiting fetches."""
        self.ready[target] = None
        for fetch in self._fetches:
            fetch.has_news(target, new_bytes)

    def has_changed(self, target: FetchTarget) -> None:
        """Add `target` to those to read, because its state has changed, and notify waiting fetches."""
        self.ready[target] = None
        for fetch in self._fetches:
            fetch.has_changed(target)

    def was_told(self, target: FetchTarget) -> None:
        """Remove `target` from the targets to read, until its partition changes."""
        self.ready.pop(target, None)

    def was_served(self, target: FetchTarget) -> None:
        """Move `target` to the end of the order, because its records were sent."""
        if target in self.ready:
            del self.ready[target]
            self.ready[target] = None

    def close(self) -> None:
        """Stop to watch all partitions."""
        for target in self.targets.values():
            target.unwatch()


class ReplicaSession(FetchSession):
    """A follower's fetch session: its partitions that this broker leads.

    Attributes:
        parked: the fetch that waits for appends.
    """

    target = ReplicaTarget
    parked: DelayedOperation[FetchResponse] | None = None
    #: up to this session epoch fetches are answered at once: somebody waits for those that come next
    _hurried = 0

    @property
    def is_hurried(self) -> bool:
        """Whether the broker must answer the present fetch at once."""
        return self.epoch <= self._hurried

    def hurry(self, fetches: int) -> None:
        """Answer this number of fetches without delay, so that the next ones arrive soon."""
        self._hurried = self.epoch + fetches
        self.unpark()

    def unpark(self) -> None:
        """Answer the delayed fetch now.

        After it a follower can send a fetch with other partitions. The delayed fetch must not read these: the
        follower does not expect them in its response.
        """
        if self.parked is not None:
            self.parked.expire()
            self.parked = None


class FetchSessions:
    """The fetch sessions of a broker, the least recently used first."""

    def __init__(self, slots: int, clock: Clock, rng: Random) -> None:
        self._slots = slots
        self._clock = clock
        self._rng = rng
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        #: how many partitions they have, together
        self.partitions = 0
        #: one for each follower: a new one replaces the earlier one
        self._of_replicas: dict[BrokerId, ReplicaSession] = {}
        #: told of each fetch of a follower
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

        Args:
            owner: principal of the client; a session is visible only to its owner.
            targets: partitions that the request names, if the caller has already made them.

        Raises:
            KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
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
        """Return the session of an incremental request. The caller then calls `advance`.

        Raises:
            KafkaError: as `resolve`.
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
        """Find or create the session of a follower (see `resolve`).

        If another fetch of the session is delayed, answer that one first.
        """
        for watcher in self.watchers:
            watcher.progressed(0)  # it looks in a later turn of the event loop
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

    def of_replica(self, replica: BrokerId) -> ReplicaSession | None:
        """Return the session of a follower."""
        return self._of_replicas.get(replica)

    def reserve(self, partitions: int) -> bool:
        """Count the partitions of a fetch that is kept without a session; False if there are too many."""
        if self.partitions + partitions > MAX_PARTITIONS:
            return False
        self.partitions += partitions
        return True

    def release(self, partitions: int) -> None:
        """Count reserved partitions no more."""
        self.partitions -= partitions

    def drop(self, session: FetchSession) -> None:
        """Remove a session whose id no response has contained."""
        self._drop(session.session_id)

    def forget_replica(self, replica: BrokerId) -> None:
        """Remove the sessions of a broker that has left the cluster."""
        if replica in self._of_replicas:
            self._close_replica(replica)

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
        if self._clock.now_ms() - oldest.used_at_ms <= MIN_EVICTION_MS:
            return False
        self._drop(oldest.session_id)
        return True

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= len(session.targets)
            session.close()

    def _touch(self, session: FetchSession) -> None:
        session.used_at_ms = self._clock.now_ms()
        self._sessions.move_to_end(session.session_id)

    def _new_id(self) -> int:
        while True:
            candidate = self._rng.randint(1, 2**31 - 1)
            if candidate not in self._sessions and all(
                session.session_id != candidate for session in self._of_replicas.values()
            ):
                return candidate
