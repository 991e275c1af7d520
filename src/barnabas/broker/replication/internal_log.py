"""The partitions of an internal topic, as a log for a coordinator."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.base.types import Buffer, LeaderEpoch, Offset
from barnabas.broker.awaitables import MaybeAwaitable
from barnabas.broker.logs.cold_reads import ColdReads
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.replication.partition import ACKS_ALL, Partition
from barnabas.broker.replication.purgatory import DelayedOperation
from barnabas.broker.storage import AppendInfo, ColdRead, Origin
from barnabas.kafka.records.batch import TRANSACTIONAL_FLAG, low_attributes


class ReplicatedLog:
    """Implements `barnabas.broker.coordinator.InternalLog` with the replicas of one topic on this broker."""

    def __init__(self, topic: str, replicas: ReplicaManager, cold_reads: ColdReads) -> None:
        self._topic = topic
        self._replicas = replicas
        self._cold_reads = cold_reads

    def append(self, partition: int, batch: bytes, epoch: LeaderEpoch, now_ms: int) -> MaybeAwaitable[None]:
        replica = self._replicas.find(self._topic, partition)
        info = None
        is_plain = not low_attributes(batch) & TRANSACTIONAL_FLAG  # a transaction's batch has no sequence
        if is_plain and replica.unwritable is None and replica.state.leader_epoch == epoch:
            info = replica.append_plain(batch, ACKS_ALL, 0, now_ms, has_keys=True)
        if info is None:
            info = _append(replica, batch, epoch)
        end = info.last_offset + 1
        if replica.log.high_watermark >= end and replica.unwritable is None:
            return None
        return _when_committed(replica, end, epoch)

    def max_bytes(self, partition: int) -> int:
        return self._replicas.find(self._topic, partition).log.config.max_message_bytes

    def bounds(self, partition: int, epoch: LeaderEpoch) -> tuple[Offset, Offset]:
        replica = self._replicas.find(self._topic, partition)
        replica.check_leader(epoch)
        return replica.log.log_start_offset, replica.log.log_end_offset

    def committed(self, partition: int, end: Offset, epoch: LeaderEpoch) -> MaybeAwaitable[None]:
        replica = self._replicas.find(self._topic, partition)
        if replica.log.high_watermark >= end and replica.unwritable is None:
            replica.check_leader(epoch)
            return None
        return _when_committed(replica, end, epoch)

    def read(self, partition: int, offset: Offset, max_bytes: int) -> MaybeAwaitable[Sequence[Buffer]]:
        def read(may_wait: bool) -> Sequence[Buffer]:
            log = self._replicas.find(self._topic, partition).log
            found = log.read(offset, max_bytes, log.high_watermark, min_one=True, may_wait=may_wait)
            return [bytes(chunk) for chunk in found.chunks]

        try:
            return read(False)
        except ColdRead as cold:
            return self._cold_reads.retry(read, cold)


def _append(replica: Partition, batch: bytes, epoch: LeaderEpoch) -> AppendInfo:
    """Append a coordinator's batch that `Partition.append_plain` has not accepted.

    Args:
        replica: this broker's replica.
        batch: one record batch.
        epoch: leader epoch in which this broker coordinates the partition.

    Raises:
        KafkaError: an error of `Partition.check_leader`, because this broker does not lead in `epoch`; the
            error in `Partition.unwritable`, because the log accepts no more writes; or an error of
            `Partition.append`.
    """
    replica.check_leader(epoch)
    if replica.unwritable is not None:  # after an append that was never committed, no other may follow
        raise replica.unwritable
    return replica.append(batch, ACKS_ALL, Origin.COORDINATOR)


async def _when_committed(replica: Partition, end: Offset, epoch: LeaderEpoch) -> None:
    """Wait until the records below `end` are committed.

    There is no time limit, even if too few replicas are in sync: the append may still be committed later. If
    that takes too long, the coordinator itself sends its client an error.

    Raises:
        KafkaError: this broker no longer leads in `epoch`, or the log accepts no more writes.
    """

    def attempt(_expired: bool) -> bool | None:
        if replica.unwritable is not None:
            raise replica.unwritable
        replica.check_leader(epoch)
        return True if replica.log.high_watermark >= end else None

    operation = DelayedOperation([replica], None, attempt)
    operation.progressed(0)
    await operation.future
