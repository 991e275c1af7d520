"""Proves, by the fetches of followers, that no other broker leads a partition (ADR 15: a read index).

A leader's session with the metadata store may be in doubt, or the partition's state may be damaged there. In
both cases, another broker may have become the leader. Then the first leader may have stale state: a committed
offset, a log end, or the owner of a transactional id. So the first leader delays a response until each
possible new leader has fetched from it after the request arrived. These fetches must have the first leader's
epoch. A broker that knows a later leader epoch never sends such a fetch. So no other broker led when the
request arrived (docs/adr/0015-a-leader-in-doubt-answers-by-a-read-index.md).

The proof uses neither a clock nor the store. So a leader whose followers fetch still answers while the whole
store is unreachable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import BrokerId, TopicPartition
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.purgatory import DelayedOperation, Watched
from barnabas.broker.server.fetching.sessions import FetchSessions
from barnabas.broker.view import BrokerView

#: A follower has at most two fetches in flight. So it sent the third fetch that arrives after a request only
#: after it had received the response to the first of the three. This broker sent that response after the
#: request arrived.
ROUNDS = 3
#: time limit of a proof, as a multiple of ``replica.fetch.wait.max.ms``
_FETCHES_WAITED_FOR = 5


class _Witness(NamedTuple):
    """The state of a follower's fetch session at the time when a client's request arrived."""

    session_id: int
    #: the session epoch of the next fetch
    epoch: int


_NONE_YET = _Witness(0, 1)


class ReadIndex:
    """Confirms that this broker led partitions at the time of a request.

    Args:
        replicas: finds the partitions of this broker.
        sessions: fetch sessions of the followers.
        view: settings of this broker.
    """

    def __init__(self, replicas: ReplicaManager, sessions: FetchSessions, view: BrokerView) -> None:
        self._replicas = replicas
        self._sessions = sessions
        self._view = view

    def confirm(self, partitions: Iterable[TopicPartition]) -> asyncio.Future[bool] | None:
        """Prove that no other broker leads these partitions at the time of this call.

        Partitions that this broker does not lead need no proof: the handler answers them with an error.

        Returns:
            None if no other broker can have become the leader. If one can, a future with the result True when
            the proof is complete. The future raises KafkaError: the error of `Partition.check_leader` when
            this broker's leadership ends, and NOT_LEADER_OR_FOLLOWER after the time limit.
        """
        asked = _Asked(self._sessions, self._leaderships(partitions))
        if asked.is_proven():
            return None
        asked.hurry()
        watched: list[Watched] = [self._sessions, *asked.partitions]
        patience_ms = _FETCHES_WAITED_FOR * self._view.config.replica_fetch_wait_max_ms
        return DelayedOperation(watched, patience_ms, asked.attempt).future

    def _leaderships(self, partitions: Iterable[TopicPartition]) -> Iterator[Partition]:
        for topic_partition in dict.fromkeys(partitions):
            try:
                partition = self._replicas.find(*topic_partition)
            except KafkaError:
                continue
            if partition.is_leader and partition.unavailable is None:
                yield partition


class _Asked:
    """The proof for one request that this broker leads the request's partitions.

    The constructor records the state of the followers' fetch sessions. A later fetch of a follower is
    evidence.
    """

    def __init__(self, sessions: FetchSessions, partitions: Iterable[Partition]) -> None:
        self._sessions = sessions
        #: by partition: its leader epoch, and the brokers that could be its leader now
        self._leaderships = {each: (each.leader_epoch, each.successors) for each in partitions}
        self._witnesses = {
            broker: self._witness(broker)
            for _, successors in self._leaderships.values()
            for broker in successors
        }

    @property
    def partitions(self) -> Iterable[Partition]:
        return self._leaderships

    def hurry(self) -> None:
        """Make the broker answer the followers' next fetches without delay, so that the proof is faster."""
        for broker in self._witnesses:
            session = self._sessions.of_replica(broker)
            if session is not None:
                session.hurry(ROUNDS - 1)

    def attempt(self, expired: bool) -> bool | None:
        """Return True if the leadership is proven, and None if not yet (for a `DelayedOperation`).

        Raises:
            KafkaError: the leadership has ended, or the time limit has `expired`.
        """
        for partition, (epoch, _) in self._leaderships.items():
            partition.check_leader(epoch)
        if self.is_proven():
            return True
        if expired:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                "the metadata store does not confirm this leader, and not all in-sync replicas follow it",
            )
        return None

    def is_proven(self) -> bool:
        return all(
            self._has_followed(broker, partition, epoch)
            for partition, (epoch, successors) in self._leaderships.items()
            for broker in successors
        )

    def _witness(self, broker: BrokerId) -> _Witness:
        session = self._sessions.of_replica(broker)
        return _NONE_YET if session is None else _Witness(session.session_id, session.epoch)

    def _has_followed(self, broker: BrokerId, partition: Partition, epoch: int) -> bool:
        """Whether `broker` fetched the partition in this leader epoch after the client's request arrived."""
        session = self._sessions.of_replica(broker)
        if session is None:
            return False
        before = self._witnesses[broker]
        since = before.epoch if session.session_id == before.session_id else _NONE_YET.epoch
        if session.epoch - since < ROUNDS:
            return False
        target = session.targets.get((partition.log.topic_id, partition.topic_partition.partition))
        return target is not None and target.current_leader_epoch == epoch
