"""The group coordinator's place in a broker: its topic's partitions, and which of them this broker leads."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from barnabas.coordinator import GroupCoordinator
from barnabas.errors import KafkaError
from barnabas.metadata import ImageDelta
from barnabas.replication.manager import ReplicaManager
from barnabas.replication.partition import ACKS_ALL, Partition
from barnabas.replication.produce import Acknowledgement, Appended
from barnabas.storage import AppendOrigin
from barnabas.types import GROUP_METADATA_TOPIC, BrokerId, Buffer, LeaderEpoch, Offset


class ReplicatedLog:
    """An internal topic as its coordinator writes and reads it: `barnabas.coordinator.InternalLog`."""

    def __init__(self, replicas: ReplicaManager, topic: str, timeout_ms: int) -> None:
        self._replicas = replicas
        self._topic = topic
        self._timeout_ms = timeout_ms

    def append(self, partition: int, batch: bytes, epoch: LeaderEpoch) -> Awaitable[None] | None:
        """Append as the leader of `epoch`; committed when every in-sync replica has it.

        Raises:
            KafkaError: as `Partition.append`; when awaited, what became of the partition, or
                REQUEST_TIMED_OUT.
        """
        target = self._replicas.find(self._topic, partition)
        target.check_leader(epoch)
        info = target.append(batch, ACKS_ALL, AppendOrigin.COORDINATOR)
        if target.is_acknowledged(info.last_offset, ACKS_ALL):
            return None
        return self._committed(target, info.last_offset)

    async def _committed(self, target: Partition, last_offset: Offset) -> None:
        failures: list[KafkaError] = []
        appended = Appended(target, last_offset, failures.append)
        await Acknowledgement([appended], ACKS_ALL, True).wait(self._timeout_ms).future
        if failures:
            raise failures[0]

    def bounds(self, partition: int) -> tuple[Offset, Offset]:
        """Log start offset and high watermark.

        Raises:
            KafkaError: the partition is not here, or its log directory has failed.
        """
        log = self._leader(partition).log
        return log.log_start_offset, log.high_watermark

    def read(self, partition: int, offset: Offset, max_bytes: int) -> Sequence[Buffer]:
        """Whole batches from `offset` on, at least one, below the high watermark.

        Raises:
            KafkaError: as `bounds`, or what the log raises.
        """
        log = self._leader(partition).log
        chunks: Sequence[Buffer] = log.read(offset, max_bytes, log.high_watermark, True).chunks
        return chunks

    def _leader(self, partition: int) -> Partition:
        target = self._replicas.find(self._topic, partition)
        target.check_leader()
        return target


def follow_image(groups: GroupCoordinator, node_id: BrokerId, delta: ImageDelta) -> None:
    """Take up and give up groups as leadership moves; forget the offsets of topics that are gone."""
    if GROUP_METADATA_TOPIC in delta.topics:
        before = delta.before.topics.get(GROUP_METADATA_TOPIC)
        after = delta.after.topics.get(GROUP_METADATA_TOPIC)
        states = after.partitions if after is not None else ()
        led = {index: state.leader_epoch for index, state in enumerate(states) if state.leader == node_id}
        is_same = before is not None and after is not None and before.id == after.id
        for partition in groups.coordinated():
            if partition not in led or not is_same:
                groups.resign(partition)
        for partition, epoch in led.items():
            groups.elect(partition, epoch)
    gone = {name for name in delta.topics if _is_gone(name, delta)}
    if gone:
        groups.forget_topics(gone)


def _is_gone(name: str, delta: ImageDelta) -> bool:
    before, after = delta.before.topics.get(name), delta.after.topics.get(name)
    return before is not None and (after is None or after.id != before.id)
