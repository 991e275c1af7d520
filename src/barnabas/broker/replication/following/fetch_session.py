"""A follower's side of a fetch session (KIP-227).

The leader knows the partitions of the session, so that requests have only changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from barnabas.base.types import UNKNOWN_OFFSET, BrokerId, LeaderEpoch, Offset, TopicId
from barnabas.broker.config import BrokerConfig
from barnabas.broker.replication.fetch_layout import Position, SessionLayout, UsualFetch
from barnabas.broker.replication.partition import Partition
from barnabas.kafka.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)

#: a partition, by its topic's id and its number
Key: TypeAlias = tuple[TopicId, int]

#: a request that names more partitions is no usual one
MAX_CHANGED = 16
#: the request number of a partition that no request has named
_NEVER = 2**63
_LAST_EPOCH = 2**31 - 1
_FINAL_EPOCH = -1


class Followed:
    """The state of copying one partition from its leader, in one leader epoch."""

    __slots__ = (
        "failures",
        "first_requested_in",
        "is_put_off",
        "key",
        "leader_epoch",
        "partition",
        "requested_in",
        "requested_offset",
        "requested_start",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch: LeaderEpoch = partition.leader_epoch
        self.key: Key = (partition.log.topic_id, partition.topic_partition.partition)
        #: the log's end and start in the latest request
        self.requested_offset = self.requested_start = UNKNOWN_OFFSET
        #: the number of that request, and of the first one with the partition
        self.requested_in = self.first_requested_in = _NEVER
        #: whether the partition is left out of requests for some time
        self.is_put_off = False
        #: errors in a row
        self.failures = 0

    def __repr__(self) -> str:
        return f"<Followed {self.partition.topic_partition} epoch {self.leader_epoch}>"

    @property
    def is_in_session(self) -> bool:
        """Whether the leader knows the partition in the present session."""
        return self.requested_in != _NEVER

    @property
    def durable_start(self) -> Offset:
        """The log's start on disk. The leader may not know of a later one, which a crash could undo."""
        log = self.partition.log
        return log.log_start_offset if log.stored_start is None else log.stored_start

    @property
    def differs_from_request(self) -> bool:
        """Whether the log's end or its start on disk differs from the latest request."""
        return (
            self.partition.log.log_end_offset != self.requested_offset
            or self.durable_start != self.requested_start
        )

    def request_position(self, number: int, max_bytes: int) -> Position:
        """Return the position from which the request with this number fetches the partition.

        Store the number, the log's end and its start. If the number or the end has changed when the response
        arrives, the response is outdated.

        Args:
            number: number of the request, higher than that of the previous one.
            max_bytes: largest number of bytes that the leader may send for the partition.
        """
        log = self.partition.log
        if self.requested_in == _NEVER:
            self.first_requested_in = number
        self.requested_in = number
        end = self.requested_offset = log.log_end_offset
        start = self.requested_start = self.durable_start
        topic_id, index = self.key
        return topic_id, index, self.leader_epoch, end, log.latest_epoch, start, max_bytes

    def invalidate_requests(self) -> None:
        """Treat responses to the requests in flight as outdated, because this log has another end now."""
        self.requested_in = self.first_requested_in = _NEVER


def _partition(position: Position) -> FetchPartition:
    _, index, leader_epoch, offset, last_epoch, start, max_bytes = position
    return FetchPartition(
        partition=index,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=start,
        partition_max_bytes=max_bytes,
    )


class FollowerFetchSession:
    """The fetch session with one leader: its id, its epoch and its partitions."""

    def __init__(self) -> None:
        #: the session id from the leader; 0 before
        self.id = 0
        self.epoch = 0
        #: the partitions in the session
        self.names: dict[Key, None] = {}
        #: the layout of the usual requests, with the settings that it has
        self._layout: SessionLayout | None = None
        self._config: BrokerConfig | None = None

    def request(
        self,
        replica: BrokerId,
        broker_epoch: int,
        number: int,
        changed: Iterable[Followed],
        unwanted: Iterable[Key],
        max_bytes: int,
    ) -> FetchRequest:
        """Return the next request of the session. The caller sets the request's limits of bytes and time.

        Args:
            replica: id of this broker.
            broker_epoch: broker epoch of this broker.
            number: number of the request, higher than that of the previous one.
            changed: partitions to name in the request.
            unwanted: partitions to remove from the session.
            max_bytes: largest number of bytes for one partition.
        """
        topics: dict[TopicId, FetchTopic] = {}
        for followed in changed:
            topic_id = followed.key[0]
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchTopic(topic_id=topic_id, partitions=[])
            topic.partitions.append(_partition(followed.request_position(number, max_bytes)))
            self.names[followed.key] = None
        forgotten: dict[TopicId, ForgottenTopic] = {}
        for key in unwanted:
            del self.names[key]
            forgotten.setdefault(key[0], ForgottenTopic(topic_id=key[0], partitions=[])).partitions.append(
                key[1]
            )
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=replica, replica_epoch=broker_epoch),
            session_id=self.id,
            session_epoch=self.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )
        self.epoch = self.epoch + 1 if self.epoch < _LAST_EPOCH else 1
        return request

    def usual_request(
        self,
        replica: BrokerId,
        broker_epoch: int,
        client_id: str,
        number: int,
        changed: Sequence[Followed],
        config: BrokerConfig,
    ) -> UsualFetch | None:
        """Return the next request of the session as a `UsualFetch`, whose encoding takes less time.

        Return None, and change nothing, if the session has not begun, or `changed` has more than
        `MAX_CHANGED` partitions. The request removes no partition from the session.

        Args:
            replica: id of this broker.
            broker_epoch: broker epoch of this broker.
            client_id: client id in the header of the request.
            number: number of the request, higher than that of the previous one.
            changed: partitions to name in the request.
            config: settings with the limits of the request.
        """
        if not self.id or not self.epoch or len(changed) > MAX_CHANGED:
            return None
        layout = self._layout
        if layout is None or config is not self._config or layout.session_id != self.id:
            limits = (
                config.replica_fetch_wait_max_ms,
                config.replica_fetch_min_bytes,
                config.replica_fetch_response_max_bytes,
            )
            layout = SessionLayout(client_id.encode(), replica, broker_epoch, self.id, limits)
            self._layout, self._config = layout, config
        max_bytes = config.replica_fetch_max_bytes
        positions = []
        for followed in changed:
            positions.append(followed.request_position(number, max_bytes))
            self.names[followed.key] = None
        epoch = self.epoch
        self.epoch = epoch + 1 if epoch < _LAST_EPOCH else 1
        return UsualFetch(layout, epoch, positions)

    def final_request(self, replica: BrokerId, broker_epoch: int) -> FetchRequest:
        """Return the request that ends the session. The arguments are the id and the epoch of this broker."""
        return FetchRequest(
            replica_state=ReplicaState(replica_id=replica, replica_epoch=broker_epoch),
            session_id=self.id,
            session_epoch=_FINAL_EPOCH,
        )
