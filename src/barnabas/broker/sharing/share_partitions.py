"""The share partitions that this broker leads, found by group and partition."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.tasks import stop_tasks
from barnabas.base.types import TopicId
from barnabas.broker.coordinator.share_state.persister import SharePartitionKey, SharePersister
from barnabas.broker.logs.cold_reads import ColdReads
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.replication.partition import Partition
from barnabas.broker.sharing.sessions import Member
from barnabas.broker.sharing.share_partition import SharePartition, Surroundings
from barnabas.broker.storage import OffsetAtTimestamp
from barnabas.broker.view import BrokerView

#: how many states are read at the same time
_LOADED_AT_ONCE = 100


class SharePartitions:
    """Every share partition in use. Owned by the event loop.

    A share partition begins with its first fetch. It ends with the leader epoch, or with the last share
    session of its group on this broker. Then the state of the group may be changed or deleted.

    Args:
        view: the settings of groups.
        replicas: finds the partitions.
        persister: reads and writes the state.
        cold_reads: brings records into memory.
        find_offset: finds the first record at or after a time (``by_duration``).
    """

    def __init__(
        self,
        view: BrokerView,
        replicas: ReplicaManager,
        persister: SharePersister,
        cold_reads: ColdReads,
        find_offset: Callable[[Partition, int], Awaitable[OffsetAtTimestamp | None]],
    ) -> None:
        self._replicas = replicas
        self._surroundings = Surroundings(
            view, persister, cold_reads, find_offset, asyncio.Semaphore(_LOADED_AT_ONCE)
        )
        #: by group, so that those of a group are found
        self._groups: dict[str, dict[SharePartitionKey, SharePartition]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def find(self, group: str, topic_id: TopicId, index: int) -> SharePartition:
        """The share partition, which is loaded or loading.

        Raises:
            KafkaError: as `ReplicaManager.find`; NOT_LEADER_OR_FOLLOWER.
        """
        partition = self._led(topic_id, index)
        key = SharePartitionKey(group, topic_id, index)
        found = self._groups.get(group, {}).get(key)
        if found is not None and found.is_ended:
            found.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            found = None
        if found is None:
            found = SharePartition(key, partition, self._surroundings, self._forget)
            self._groups.setdefault(group, {})[key] = found
        found.keep()
        return found

    def get(self, group: str, topic_id: TopicId, index: int) -> SharePartition:
        """The share partition whose records a member has acquired.

        Raises:
            KafkaError: as `find`; INVALID_RECORD_STATE, no member has acquired any.
        """
        self._led(topic_id, index)
        found = self._groups.get(group, {}).get(SharePartitionKey(group, topic_id, index))
        if found is None:
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "the member has acquired nothing here")
        return found

    def _led(self, topic_id: TopicId, index: int) -> Partition:
        partition = self._replicas.find(topic_id, index)
        partition.check_leader()
        return partition

    def end_session(self, member: Member, counts: bool, is_last: bool) -> None:
        """Release all that a member has acquired.

        Args:
            member: whose session has ended.
            counts: whether the records count as delivered.
            is_last: whether no other member of the group has a session with this broker.
        """
        for each in list(self._groups.get(member.group, {}).values()):
            each.end_session(member.member_id, counts=counts)
            if is_last:
                each.end_when_written()

    def _forget(self, ended: SharePartition) -> None:
        group = self._groups.get(ended.key.group, {})
        if group.get(ended.key) is ended:
            del group[ended.key]
            if not group:
                del self._groups[ended.key.group]

    async def stop(self) -> None:
        """End all share partitions; what is not stored is lost, as after a crash."""
        tasks = [
            task
            for group in list(self._groups.values())
            for each in list(group.values())
            for task in each.stop()
        ]
        await stop_tasks(*tasks)
