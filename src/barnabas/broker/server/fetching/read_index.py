"""Proof, by the fetches of followers, that nobody else leads a partition: a read index.

A broker that cannot be sure of its session with the metadata store may have been replaced. Then its memory
may be stale: a committed offset, the end of a log, the owner of a transactional id. So it answers only when
each broker that could have been elected in its stead has fetched from it since, in its leader epoch. A broker
that has learnt of a later leader epoch never does. So nobody had begun to lead when the question came
(docs/adr/0015-a-leader-in-doubt-answers-by-a-read-index.md).

This uses no clock and no store: while the whole ensemble is away and all followers fetch, nothing stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import BrokerId, TopicPartition
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.purgatory import DelayedOperation, Watched
from barnabas.broker.server.fetching.sessions import FetchSessions

#: A follower has at most two fetches under way. So the third one that arrives after a question was sent after
#: an answer to the first, and that after the question.
ROUNDS = 3


class _Witness(NamedTuple):
    """A follower's fetch session as it was when the question came."""

    session_id: int
    #: the epoch of the fetch that came next
    epoch: int


_NONE_YET = _Witness(0, 1)


class ReadIndex:
    """Confirms that this broker led partitions at the moment of a question.

    Args:
        replicas: the partitions.
        sessions: the followers' fetch sessions.
        is_certain: whether this broker is sure of its leaderships anyway.
        patience_ms: how long a question waits for the followers.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        sessions: FetchSessions,
        is_certain: Callable[[], bool],
        patience_ms: Callable[[], int],
    ) -> None:
        self._replicas = replicas
        self._sessions = sessions
        self._patience_ms = patience_ms
        #: whether nothing needs to be confirmed
        self.is_certain = is_certain

    def confirm(self, partitions: Iterable[TopicPartition]) -> asyncio.Future[bool] | None:
        """Wait until it is proven that nobody else had begun to lead these partitions at this moment.

        Partitions that this broker does not lead are left out: their answer is an error already.

        Returns:
            None if that is proven. A future otherwise, which raises KafkaError NOT_LEADER_OR_FOLLOWER when
            this broker's leadership has ended, or the time is over.
        """
        asked = _Asked(self._sessions, self._led(partitions))
        if asked.is_proven():
            return None
        asked.hurry()
        watched: list[Watched] = [self._sessions, *asked.partitions]
        return DelayedOperation(watched, self._patience_ms(), asked.attempt).future

    def _led(self, partitions: Iterable[TopicPartition]) -> Iterator[Partition]:
        for topic_partition in dict.fromkeys(partitions):
            try:
                partition = self._replicas.find(*topic_partition)
            except KafkaError:
                continue
            if partition.is_leader and partition.unavailable is None:
                yield partition


class _Asked:
    """Partitions whose leadership is in question, and what was known of their followers at that moment."""

    def __init__(self, sessions: FetchSessions, partitions: Iterable[Partition]) -> None:
        self._sessions = sessions
        #: with the leader epoch and who could have been elected since
        self._led = {each: (each.leader_epoch, each.successors) for each in partitions}
        self._witnesses = {
            broker: self._witness(broker) for _, successors in self._led.values() for broker in successors
        }

    @property
    def partitions(self) -> Iterable[Partition]:
        return self._led

    def hurry(self) -> None:
        """Have the followers' next fetches answered at once."""
        for broker in self._witnesses:
            session = self._sessions.of_replica(broker)
            if session is not None:
                session.hurry(ROUNDS - 1)

    def attempt(self, expired: bool) -> bool | None:
        """Try to complete the `DelayedOperation`: True once the leadership is proven."""
        for partition, (epoch, _) in self._led.items():
            partition.check_leader(epoch)
        if self.is_proven():
            return True
        if expired:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                "the metadata store is out of reach, and not all in-sync replicas follow this broker",
            )
        return None

    def is_proven(self) -> bool:
        return all(
            self._has_followed(broker, partition, epoch)
            for partition, (epoch, successors) in self._led.items()
            for broker in successors
        )

    def _witness(self, broker: BrokerId) -> _Witness:
        session = self._sessions.of_replica(broker)
        return _NONE_YET if session is None else _Witness(session.session_id, session.epoch)

    def _has_followed(self, broker: BrokerId, partition: Partition, epoch: int) -> bool:
        """Whether a fetch that was sent after the question has the partition, in that leader epoch."""
        session = self._sessions.of_replica(broker)
        if session is None:
            return False
        before = self._witnesses[broker]
        since = before.epoch if session.session_id == before.session_id else _NONE_YET.epoch
        if session.epoch - since < ROUNDS:
            return False
        target = session.targets.get((partition.log.topic_id, partition.topic_partition.partition))
        return target is not None and target.current_leader_epoch == epoch
