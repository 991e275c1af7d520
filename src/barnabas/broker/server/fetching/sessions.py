"""Fetch sessions (KIP-227): the broker remembers which partitions a client fetches, the client sends changes.

The number of sessions is bounded, and that of their partitions. When all are in use, a new session replaces
one that has been idle for two minutes; if none has, session id 0 tells the client to fetch without a session.
A follower has one session, which no client can take from it.
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
    """Is notified of changes to the partitions of its targets."""

    def has_news(self, target: FetchTarget, new_bytes: int) -> None:
        """The partition of a target has progressed (`Watcher.progressed`)."""

    def has_changed(self, target: FetchTarget) -> None:
        """The next answer has to contain something new about `target`; it need not come sooner for it."""


class FetchTarget:
    """One partition as a client requested it, with the state that it was last sent.

    From `watch` to `unwatch` it watches its partition, once it has been found.
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
        """Update the client's position."""
        self.offset = wanted.fetch_offset
        self.max_bytes = max(0, wanted.partition_max_bytes)
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch

    def find_partition(self, replicas: ReplicaManager) -> Partition:
        """The partition, which is looked up again only after its topic was deleted.

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
        """Notify `listener` of changes to the partition."""
        self.listener = listener
        if self.partition is not None:
            self._enter(self.partition)

    def unwatch(self) -> None:
        """The inverse of `watch`."""
        self.listener = None
        if self.partition is not None:
            self._leave(self.partition)

    def _enter(self, partition: Partition) -> None:
        partition.watchers[self] = None

    def _leave(self, partition: Partition) -> None:
        partition.watchers.pop(self, None)

    def progressed(self, new_bytes: int) -> None:
        """The partition has changed (`Watcher`)."""
        if self.listener is not None:
            self.listener.has_news(self, new_bytes)

    def is_news(self, data: PartitionData) -> bool:
        """Whether `data` contains anything new for the client, which counts as sent from now on."""
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
    """A partition as a follower asked for it: it reads what is appended, before it is committed.

    A moved high watermark is sent with the next answer and does not cause one by itself: each append would
    cost two fetches (KAFKA-9731).
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
        """The leader has appended so many bytes (`AppendListener`)."""
        if self.listener is not None:
            self.listener.has_news(self, new_bytes)


def requested(request: FetchRequest, target: type[FetchTarget] = FetchTarget) -> Iterable[FetchTarget]:
    """The partitions that a request names, in its order."""
    for topic in request.topics:
        key: TopicKey = topic.topic or topic.topic_id
        for wanted in topic.partitions:
            yield target(key, wanted)


class FetchSession:
    """One client's partitions. The cost of a fetch grows with the number of those that have changed.

    `ready` has those that may have something new for the client, in the order in which they are read. A
    partition whose records have been sent goes to the end, so that every partition has its turn.
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
        """`targets` is what the request names, if that is known already."""
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
        """Apply the changes that an incremental request brings."""
        for _ in self.advance_in_steps(request):
            pass

    def advance_in_steps(self, request: FetchRequest) -> Iterator[None]:
        """Do the work of `advance` in steps. Take no step once the session is closed."""
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
        """The targets that a fetch has to read, in this order.

        Args:
            committed: whether it reads up to the last stable offset.
        """
        if committed is not self._is_committed:  # what was read to its end may go on
            self._is_committed = committed
            self.ready = dict.fromkeys(self.targets.values())
        return list(self.ready)

    def join(self, fetch: NewsListener) -> None:
        """Notify a fetch of changes, until it leaves."""
        self._fetches.append(fetch)

    def leave(self, fetch: NewsListener) -> None:
        """A fetch has its answer, or its client has gone."""
        self._fetches.remove(fetch)

    def has_news(self, target: FetchTarget, new_bytes: int) -> None:
        """See `NewsListener`."""
        self.ready[target] = None
        for fetch in self._fetches:
            fetch.has_news(target, new_bytes)

    def has_changed(self, target: FetchTarget) -> None:
        """See `NewsListener`."""
        self.ready[target] = None
        for fetch in self._fetches:
            fetch.has_changed(target)

    def was_told(self, target: FetchTarget) -> None:
        """Do not read `target` again before its partition changes."""
        self.ready.pop(target, None)

    def was_served(self, target: FetchTarget) -> None:
        """Read `target` last next time, since it has just had its turn."""
        if target in self.ready:
            del self.ready[target]
            self.ready[target] = None

    def close(self) -> None:
        """Watch nothing any more."""
        for target in self.targets.values():
            target.unwatch()


class ReplicaSession(FetchSession):
    """A follower's partitions of which this broker is the leader.

    Attributes:
        parked: the fetch that waits for appends.
    """

    target = ReplicaTarget
    parked: DelayedOperation[FetchResponse] | None = None
    #: up to this session epoch fetches are answered at once: somebody waits for those that come next
    _hurried = 0

    @property
    def is_hurried(self) -> bool:
        """Whether the fetch that has just come is to be answered at once."""
        return self.epoch <= self._hurried

    def hurry(self, fetches: int) -> None:
        """Answer so many fetches at once, for the next ones to come soon."""
        self._hurried = self.epoch + fetches
        self.unpark()

    def unpark(self) -> None:
        """Answer the fetch that waits: the follower has sent another one because it follows other partitions.

        The earlier fetch must not read the new partitions: the follower does not expect them in its answer.
        """
        if self.parked is not None:
            self.parked.expire()
            self.parked = None


class FetchSessions:
    """The sessions of a broker, the least recently used first."""

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
        """The session that `request` opens or continues; None if it has none and gets none.

        Args:
            owner: whose session it is: to others it does not exist.
            targets: what the request names, if that is known already.

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
        """The session that an incremental request goes on with: `advance` it.

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
        """Apply the changes that an incremental request brings to its session, in steps.

        Raises:
            KafkaError: FETCH_SESSION_ID_NOT_FOUND, the session has gone meanwhile, or is too large now.
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

        A fetch of the session that still waits is answered first.
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
        """The session of a follower."""
        return self._of_replicas.get(replica)

    def drop(self, session: FetchSession) -> None:
        """Remove a session whose id was never sent to its client."""
        self._drop(session.session_id)

    def forget_replica(self, replica: BrokerId) -> None:
        """A follower's broker has left the cluster."""
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
