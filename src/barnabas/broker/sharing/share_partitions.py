"""The share partitions of the partitions that this broker leads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.tasks import stop_tasks
from barnabas.base.types import TopicId, TopicKey
from barnabas.broker.coordinator.share_state.persister import SharePartitionKey, SharePersister
from barnabas.broker.logs.cold_reads import ColdReads
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.replication.partition import Partition
from barnabas.broker.sharing.counts import ShareCounts
from barnabas.broker.sharing.dead_lettering import CheckLeader, LetterWriter
from barnabas.broker.sharing.sessions import Member
from barnabas.broker.sharing.share_partition import Dependencies, SharePartition
from barnabas.broker.storage import OffsetAtTimestamp
from barnabas.broker.view import BrokerView

#: how many states are read at the same time
_LOADED_AT_ONCE = 100


class SharePartitions:
    """Every share partition in use on this broker. The event loop owns this object.

    The first fetch creates a share partition. The share partition ends with the leader epoch, or with the
    last share session of its group on this broker. Before it ends with the last share session, it stores its
    changes and writes its dead letters. An administrator can then change or delete its stored state.

    Args:
        view: has the settings of groups.
        replicas: finds the partitions.
        persister: reads and writes the stored states of share partitions.
        cold_reads: reads records from the disk into memory.
        find_offset: awaited with a partition and a time in milliseconds; returns the first record at or after
            this time, or None. It serves groups with ``share.auto.offset.reset=by_duration:...``.
        letter_writer: returns the writer of a share partition's dead letters. It is called with the key, the
            partition, whether a former leader may have written dead letters, and a function to await that
            raises KafkaError if another broker has become the leader.
    """

    def __init__(
        self,
        view: BrokerView,
        replicas: ReplicaManager,
        persister: SharePersister,
        cold_reads: ColdReads,
        find_offset: Callable[[Partition, int], Awaitable[OffsetAtTimestamp | None]],
        letter_writer: Callable[[SharePartitionKey, Partition, bool, CheckLeader], LetterWriter],
    ) -> None:
        self.counts = ShareCounts()
        self._replicas = replicas
        self._dependencies = Dependencies(
            view,
            persister,
            cold_reads,
            find_offset,
            letter_writer,
            self.counts,
            asyncio.Semaphore(_LOADED_AT_ONCE),
        )
        #: by group, because `end_session` needs all share partitions of one group
        self._groups: dict[str, dict[SharePartitionKey, SharePartition]] = {}

    def __iter__(self) -> Iterator[SharePartition]:
        """Iterate over a snapshot of the share partitions in use. Later changes do not affect it."""
        return iter([each for group in self._groups.values() for each in group.values()])

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def find(self, group: str, topic_id: TopicId, index: int) -> SharePartition:
        """Return a share partition for a fetch. If it is not in use, create it and begin to load its state.

        A share partition that has ended, or that only dead letters keep (`is_unused`), is replaced with a new
        one.

        Raises:
            KafkaError: the errors of `ReplicaManager.find`; NOT_LEADER_OR_FOLLOWER, this broker does not lead
                the partition.
        """
        partition = self._led_partition(topic_id, index)
        key = SharePartitionKey(group, topic_id, index)
        found = self._groups.get(group, {}).get(key)
        if found is not None and (found.is_ended or found.is_unused):
            found.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            found = None
        if found is None:
            found = SharePartition(key, partition, self._dependencies, self._forget)
            self._groups.setdefault(group, {})[key] = found
        found.cancel_end()
        return found

    def get(self, group: str, topic_id: TopicId, index: int) -> SharePartition:
        """Return a share partition for acknowledgements. Unlike `find`, create none.

        Raises:
            KafkaError: the errors of `find`; INVALID_RECORD_STATE, the share partition is not in use.
        """
        found = self.find_in_use(group, topic_id, index)
        if found is None:
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE, "the member has acquired no records of this partition"
            )
        return found

    def find_in_use(self, group: str, topic: TopicKey, index: int) -> SharePartition | None:
        """Return a share partition; None if it is not in use. Unlike `find`, create none.

        Raises:
            KafkaError: the errors of `ReplicaManager.find`; NOT_LEADER_OR_FOLLOWER, this broker does not lead
                the partition.
        """
        key = SharePartitionKey(group, self._led_partition(topic, index).log.topic_id, index)
        return self._groups.get(group, {}).get(key)

    def _led_partition(self, topic: TopicKey, index: int) -> Partition:
        partition = self._replicas.find(topic, index)
        partition.check_leader()
        return partition

    def check_states(self, group: str) -> None:
        """End the group's share partitions whose stored state was reset, because a member begins a session.

        See `SharePartition.check_state`.
        """
        for each in self._groups.get(group, {}).values():
            each.check_state()

    def end_session(self, member: Member, is_last: bool) -> None:
        """Release all records that a member has acquired.

        Args:
            member: the member whose session has ended.
            is_last: whether no other member of the group has a session on this broker. The group's share
                partitions then end when their changes are stored.
        """
        for each in list(self._groups.get(member.group, {}).values()):
            each.end_session(member.member_id)
            if is_last:
                each.end_when_written()

    def _forget(self, ended: SharePartition) -> None:
        group = self._groups.get(ended.key.group, {})
        if group.get(ended.key) is ended:
            del group[ended.key]
            if not group:
                del self._groups[ended.key.group]

    async def stop(self) -> None:
        """End all share partitions. Changes that are not stored are lost, as after a crash."""
        tasks = [
            task
            for group in list(self._groups.values())
            for each in list(group.values())
            for task in each.stop()
        ]
        await stop_tasks(*tasks)
