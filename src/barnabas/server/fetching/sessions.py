"""Fetch sessions (KIP-227): the broker remembers which partitions a client fetches, the client sends changes.

The number of sessions is bounded, and that of their partitions. When all are taken, one that has been silent
for two minutes makes room;
when none has, the client is told by session id 0 to go on without.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING, Protocol

from barnabas.environment.clock import Clock
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData
from barnabas.types import TopicKey

if TYPE_CHECKING:
    from barnabas.replication.manager import ReplicaManager
    from barnabas.replication.partition import Partition

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_LAST_EPOCH = 2**31 - 1

#: How long a session must have been silent before another may take its place, in milliseconds.
MIN_EVICTION_MS = 120_000

#: How many partitions the sessions have at most, together: each takes about 350 bytes.
MAX_PARTITIONS = 400_000


class NewsListener(Protocol):
    """Whose targets are told of what happens to their partitions."""

    def has_news(self, target: FetchTarget, new_bytes: int) -> None:
        """As `Watcher.progressed`, of one target's partition."""


class FetchTarget:
    """One partition as a client asked for it, and what it was last told.

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
        self.index = wanted.partition
        self.key = (topic, wanted.partition)
        self.high_watermark = -1
        self.log_start_offset = -1
        self.partition: Partition | None = None
        self.listener: NewsListener | None = None
        self.want(wanted)

    def want(self, wanted: FetchPartition) -> None:
        """Take over where the client is now."""
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
                partition.watchers.pop(self, None)
                self.partition = None
            partition = self.partition = replicas.find(self.topic, self.index)
            if self.listener is not None:
                partition.watchers[self] = None
        return partition

    def watch(self, listener: NewsListener) -> None:
        """Tell `listener` of what happens to the partition."""
        self.listener = listener
        if self.partition is not None:
            self.partition.watchers[self] = None

    def unwatch(self) -> None:
        """The inverse of `watch`."""
        self.listener = None
        if self.partition is not None:
            self.partition.watchers.pop(self, None)

    def progressed(self, new_bytes: int) -> None:
        """The partition has news (`Watcher`)."""
        if self.listener is not None:
            self.listener.has_news(self, new_bytes)

    def is_news(self, data: PartitionData) -> bool:
        """Whether `data` tells the client what it does not know; it is taken as told."""
        if data.error_code:
            # Told again after every error, whatever the numbers then are.
            self.high_watermark = -1
            return True
        changed = data.high_watermark != self.high_watermark or data.log_start_offset != self.log_start_offset
        self.high_watermark = data.high_watermark
        self.log_start_offset = data.log_start_offset
        return changed or bool(data.records) or data.diverging_epoch.epoch >= 0


def requested(request: FetchRequest) -> Iterable[FetchTarget]:
    """The partitions that a request names, in its order."""
    for topic in request.topics:
        key: TopicKey = topic.topic or topic.topic_id
        for wanted in topic.partitions:
            yield FetchTarget(key, wanted)


class FetchSession:
    """One client's partitions. What a fetch costs follows from how many of them have news.

    `ready` has those that may have something to tell which the client has not been told, in the order in
    which they are read: a partition goes to the end when its records have been sent, so all have their turn.
    """

    def __init__(self, session_id: int, request: FetchRequest, uses_topic_ids: bool) -> None:
        self.session_id = session_id
        #: the epoch the next request must have
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.targets: dict[tuple[TopicKey, int], FetchTarget] = {t.key: t for t in requested(request)}
        self.ready: dict[FetchTarget, None] = dict.fromkeys(self.targets.values())
        self.used_at_ms = 0
        #: the fetches that wait, of which there is rarely more than one
        self._fetches: list[NewsListener] = []
        self._is_committed = False
        for target in self.ready:
            target.watch(self)

    def advance(self, request: FetchRequest) -> None:
        """Apply the changes that an incremental request brings."""
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                target = self.targets.pop((forgotten.topic or forgotten.topic_id, index), None)
                if target is not None:
                    target.unwatch()
                    self.ready.pop(target, None)
        for topic in request.topics:
            key: TopicKey = topic.topic or topic.topic_id
            for wanted in topic.partitions:
                target = self.targets.get((key, wanted.partition))
                if target is None:
                    target = FetchTarget(key, wanted)
                    target.watch(self)
                    self.targets[target.key] = target
                else:
                    target.want(wanted)
                self.has_news(target, 0)
        self.epoch = self.epoch + 1 if self.epoch < _LAST_EPOCH else 1

    def to_read(self, *, committed: bool) -> list[FetchTarget]:
        """What a fetch has to read, in this order.

        Args:
            committed: whether it reads up to the last stable offset.
        """
        if committed is not self._is_committed:  # what was read to its end may go on
            self._is_committed = committed
            self.ready = dict.fromkeys(self.targets.values())
        return list(self.ready)

    def join(self, fetch: NewsListener) -> None:
        """Tell a fetch of news, until it leaves."""
        self._fetches.append(fetch)

    def leave(self, fetch: NewsListener) -> None:
        """A fetch has its answer, or its client has gone."""
        self._fetches.remove(fetch)

    def has_news(self, target: FetchTarget, new_bytes: int) -> None:
        """See `NewsListener`."""
        self.ready[target] = None
        for fetch in self._fetches:
            fetch.has_news(target, new_bytes)

    def was_told(self, target: FetchTarget) -> None:
        """There is nothing to read of `target` before there are news of it."""
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


class FetchSessions:
    """The sessions of a broker, the least recently used first."""

    def __init__(self, slots: int, clock: Clock, rng: Random) -> None:
        self._slots = slots
        self._clock = clock
        self._rng = rng
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        #: how many partitions they have, together
        self.partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def resolve(self, request: FetchRequest, uses_topic_ids: bool) -> FetchSession | None:
        """The session that `request` opens or goes on with; None when it has or gets none.

        Raises:
            KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._drop(request.session_id)
            if request.session_epoch == FINAL_EPOCH or not request.topics:
                return None
            return self._open(request, uses_topic_ids)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != session.epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if uses_topic_ids != session.uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        before = len(session.targets)
        session.advance(request)
        self.partitions += len(session.targets) - before
        if self.partitions > MAX_PARTITIONS:
            self._drop(session.session_id)  # the client starts again, and continues without a session
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        self._touch(session)
        return session

    def _open(self, request: FetchRequest, uses_topic_ids: bool) -> FetchSession | None:
        if len(self._sessions) >= self._slots and not self._evict():
            return None
        asked = sum(len(topic.partitions) for topic in request.topics)
        while self.partitions + asked > MAX_PARTITIONS:
            if not self._evict():
                return None
        session = FetchSession(self._new_id(), request, uses_topic_ids)
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
            if candidate not in self._sessions:
                return candidate
