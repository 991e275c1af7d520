"""Fetch sessions (KIP-227): the broker remembers which partitions a client fetches, the client sends changes.

The number of sessions is bounded, and that of their partitions. When all are taken, one that has been silent
for two minutes makes room;
when none has, the client is told by session id 0 to go on without.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterable

from barnabas.environment.clock import Clock
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData
from barnabas.types import TopicKey

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_LAST_EPOCH = 2**31 - 1

#: How long a session must have been silent before another may take its place, in milliseconds.
MIN_EVICTION_MS = 120_000

#: How many partitions the sessions have at most, together: each takes about 350 bytes.
MAX_PARTITIONS = 400_000


class FetchTarget:
    """One partition as a client asked for it, and what it was last told."""

    __slots__ = (
        "current_leader_epoch",
        "high_watermark",
        "index",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "offset",
        "topic",
    )

    def __init__(self, topic: TopicKey, wanted: FetchPartition) -> None:
        self.topic = topic
        self.index = wanted.partition
        self.key = (topic, wanted.partition)
        self.high_watermark = -1
        self.log_start_offset = -1
        self.want(wanted)

    def want(self, wanted: FetchPartition) -> None:
        """Take over where the client is now."""
        self.offset = wanted.fetch_offset
        self.max_bytes = max(0, wanted.partition_max_bytes)
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch

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
    """One client's partitions, in the order they are read."""

    def __init__(self, session_id: int, request: FetchRequest, uses_topic_ids: bool) -> None:
        self.session_id = session_id
        #: the epoch the next request must have
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.targets: dict[tuple[TopicKey, int], FetchTarget] = {t.key: t for t in requested(request)}
        self.used_at_ms = 0

    def advance(self, request: FetchRequest) -> None:
        """Apply the changes that an incremental request brings."""
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                self.targets.pop((forgotten.topic or forgotten.topic_id, index), None)
        for topic in request.topics:
            key: TopicKey = topic.topic or topic.topic_id
            for wanted in topic.partitions:
                target = self.targets.get((key, wanted.partition))
                if target is None:
                    target = FetchTarget(key, wanted)
                    self.targets[target.key] = target
                else:
                    target.want(wanted)
        self.epoch = self.epoch + 1 if self.epoch < _LAST_EPOCH else 1

    def rotate(self, target: FetchTarget) -> None:
        """Read `target` last next time, since it has just had its turn."""
        if self.targets.get(target.key) is target:
            del self.targets[target.key]
            self.targets[target.key] = target


class FetchSessions:
    """The sessions of a broker, the least recently used first."""

    def __init__(self, slots: int, clock: Clock, rng: random.Random) -> None:
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
            self._drop(session.session_id)  # the client begins anew, and goes on without a session
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

    def _touch(self, session: FetchSession) -> None:
        session.used_at_ms = self._clock.now_ms()
        self._sessions.move_to_end(session.session_id)

    def _new_id(self) -> int:
        while True:
            candidate = self._rng.randint(1, 2**31 - 1)
            if candidate not in self._sessions:
                return candidate
