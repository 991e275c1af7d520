"""A follower's side of a fetch session (KIP-227).

The leader knows the partitions of the session, so that requests have only changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from barnabas.base.types import UNKNOWN_OFFSET, BrokerId, LeaderEpoch, Offset, TopicId
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

#: the request number of a partition that no request has named
_NEVER = 2**63
_LAST_EPOCH = 2**31 - 1
_FINAL_EPOCH = -1


class Followed:
    """The state of copying one partition from its leader, in one leader epoch."""

    __slots__ = (
        "failures",
        "is_put_off",
        "key",
        "leader_epoch",
        "partition",
        "told_first",
        "told_in",
        "told_offset",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch: LeaderEpoch = partition.leader_epoch
        self.key: Key = (partition.log.topic_id, partition.topic_partition.partition)
        #: the log's end in the latest request, the number of that request, and the first with the partition
        self.told_offset: Offset = UNKNOWN_OFFSET
        self.told_in = self.told_first = _NEVER
        #: whether the partition is left out of requests for some time
        self.is_put_off = False
        #: errors in a row
        self.failures = 0

    def __repr__(self) -> str:
        return f"<Followed {self.partition.topic_partition} epoch {self.leader_epoch}>"

    @property
    def is_told(self) -> bool:
        """Whether the leader knows the partition in the present session."""
        return self.told_in != _NEVER

    def tell(self, number: int, max_bytes: int) -> FetchPartition:
        """Return the partition's entry for the request with this number, and note that the request has it."""
        log = self.partition.log
        if not self.is_told:
            self.told_first = number
        self.told_in = number
        self.told_offset = log.log_end_offset
        return FetchPartition(
            partition=self.key[1],
            current_leader_epoch=self.leader_epoch,
            fetch_offset=log.log_end_offset,
            last_fetched_epoch=log.latest_epoch,
            log_start_offset=log.log_start_offset if log.stored_start is None else log.stored_start,
            partition_max_bytes=max_bytes,
        )

    def forget_told(self) -> None:
        """Ignore the responses to requests in flight, because they are for an earlier end of this log."""
        self.told_in = self.told_first = _NEVER


class FollowerFetchSession:
    """The fetch session with one leader: its id, its epoch and its partitions."""

    def __init__(self) -> None:
        #: the session id from the leader; 0 before
        self.id = 0
        self.epoch = 0
        #: the partitions in the session
        self.names: dict[Key, None] = {}

    def request(
        self,
        replica: BrokerId,
        broker_epoch: int,
        number: int,
        changed: Iterable[Followed],
        unwanted: Iterable[Key],
        max_bytes: int,
    ) -> FetchRequest:
        """Return the next request of the session. The caller sets its byte and time limits.

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
            topic.partitions.append(followed.tell(number, max_bytes))
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

    def final_request(self, replica: BrokerId, broker_epoch: int) -> FetchRequest:
        """Return the request that ends the session."""
        return FetchRequest(
            replica_state=ReplicaState(replica_id=replica, replica_epoch=broker_epoch),
            session_id=self.id,
            session_epoch=_FINAL_EPOCH,
        )
