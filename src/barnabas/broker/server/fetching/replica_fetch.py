"""Executes a follower's fetch: reads up to the log end, and reports the follower's position."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import NO_LEADER_EPOCH, BrokerId, Buffer, Chunk, Offset
from barnabas.broker.server.fetching.fetch import Fetch
from barnabas.broker.server.fetching.sessions import FetchTarget, ReplicaSession, ReplicaTarget
from barnabas.kafka.protocol.messages.fetch import EpochEndOffset, PartitionData

if TYPE_CHECKING:
    from barnabas.broker.replication.manager import ReplicaManager
    from barnabas.broker.replication.partition import Partition
    from barnabas.broker.replication.throttles import Throttle


class ReplicaFetch(Fetch):
    """A follower's fetch: it reads up to the log end, and reports the follower's position to each partition.

    It reports a position only when the follower sends a new one for the partition.

    Args:
        replicas: finds the partitions of this broker.
        wanted: partitions to read, in this order; or the fetch session that has them.
        replica: broker id of the follower.
        broker_epoch: broker epoch of the follower (KIP-903); -1 if the request has none.
        min_bytes: bytes that the response needs before the maximum wait time is over.
        max_bytes: largest size of the response; the first batch is sent even if it is larger.
        throttle: throttle of the data that leaders send to followers (KIP-73).
    """

    __slots__ = ("_broker_epoch", "_replica", "_throttle")

    def __init__(
        self,
        replicas: ReplicaManager,
        wanted: ReplicaSession | Iterable[FetchTarget],
        *,
        replica: BrokerId,
        broker_epoch: int,
        min_bytes: int,
        max_bytes: int,
        throttle: Throttle,
    ) -> None:
        super().__init__(replicas, wanted, min_bytes=min_bytes, max_bytes=max_bytes, committed=False)
        self._replica = replica
        self._broker_epoch = broker_epoch
        self._throttle = throttle

    def _read(self, target: FetchTarget, max_bytes: int, min_one: bool) -> PartitionData:
        data = PartitionData(
            partition_index=target.index, high_watermark=-1, aborted_transactions=None, records=b""
        )
        try:
            partition = target.find_partition(self._replicas)
            if self._replica in partition.state.replicas:
                partition.overtaken(target.current_leader_epoch)
            partition.check_leader(target.current_leader_epoch)
            log = partition.log
            data.log_start_offset = log.log_start_offset  # where the follower goes on that is out of range
            # Nearly always the follower has this log's latest epoch, and no more of it.
            is_prefix = target.last_fetched_epoch == log.latest_epoch and target.offset <= log.log_end_offset
            if is_prefix or not (
                target.last_fetched_epoch >= 0 and self._parts_ways(partition, target, data)
            ):
                if isinstance(target, ReplicaTarget) and target.is_new:
                    if not log.log_start_offset <= target.offset <= log.log_end_offset:
                        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
                    partition.followed(self._replica, self._broker_epoch, target.offset, target.replica_start)
                    target.is_new = False
                    self._unread.pop(target, None)  # what that has moved is told below
                if target.offset != log.log_end_offset and (max_bytes > 0 or min_one):
                    data.records = self._records(partition, target.offset, max_bytes, min_one)
            data.log_start_offset = log.log_start_offset
            data.high_watermark = log.high_watermark
            data.last_stable_offset = log.last_stable_offset
        except KafkaError as error:
            data.error_code = error.code
        return data

    def _records(
        self, partition: Partition, offset: Offset, max_bytes: int, min_one: bool
    ) -> Buffer | Sequence[Chunk]:
        log, throttle = partition.log, self._throttle
        if throttle.is_idle:
            read = log.read(offset, max_bytes, log.log_end_offset, min_one, self._may_wait)
            partition.traffic.replication_bytes_out += read.size
            return read.chunks
        is_in_sync = self._replica in partition.state.isr
        if not throttle.allows(partition.topic_partition, in_sync=is_in_sync):
            return b""  # it asks again, after its max.wait at the latest
        read = log.read(offset, max_bytes, log.log_end_offset, min_one, self._may_wait)
        throttle.record(partition.topic_partition, read.size)
        partition.traffic.replication_bytes_out += read.size
        return read.chunks

    def _parts_ways(self, partition: Partition, target: FetchTarget, data: PartitionData) -> bool:
        """Whether the follower's log diverges from this leader's log, so that the follower must truncate.

        If the logs diverge, set `data.diverging_epoch` to the epoch and the end offset for the truncation.

        The leader's log can be empty and without a leader epoch, for example after the loss of its disk. Then
        the logs diverge if the follower's fetch offset is above the leader's log end offset. The follower
        must truncate to the leader's log end offset.

        Args:
            partition: the partition, which this broker leads.
            target: the fetched partition, with the follower's fetch offset and last fetched epoch.
            data: the partition's part of the response.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE, the last fetched epoch is before all leader epochs in the
                leader's log.
        """
        log = partition.log
        if log.latest_epoch != NO_LEADER_EPOCH or log.log_start_offset < log.log_end_offset:
            return self._diverges(partition, target, data)
        if target.offset <= log.log_end_offset:
            return False
        data.diverging_epoch = EpochEndOffset(epoch=target.last_fetched_epoch, end_offset=log.log_end_offset)
        return True

    def _uncount(self, target: FetchTarget, data: PartitionData) -> None:
        if target.partition is not None:
            chunks: list[Chunk] = data.records  # type: ignore[assignment]
            target.partition.traffic.replication_bytes_out -= sum(map(len, chunks))

    def _has_nothing_left(self, target: FetchTarget, data: PartitionData) -> bool:
        return (
            target.partition is not None
            and target.offset == target.partition.log.log_end_offset
            and not data.error_code
            and data.diverging_epoch.epoch < 0
            and target not in self._unread
        )
