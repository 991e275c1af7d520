"""One partition as this broker holds it: who leads, who is in sync, and up to where records are committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.errors import ErrorCode, KafkaError
from barnabas.replication.delayed import Delayed
from barnabas.types import NO_LEADER_EPOCH, BrokerId, Buffer, LeaderEpoch, Offset, TopicPartition

if TYPE_CHECKING:
    from barnabas.metadata.image import PartitionState
    from barnabas.storage import AppendInfo, AppendOrigin, PartitionLog

ACKS_ALL = -1


class Partition:
    """A replica and what the cluster says of its partition. Owned by the event loop.

    The high watermark is the end of what every in-sync replica has: consumers see nothing past it, and a
    produce with acks=all waits for it. With ``barnabas.acks.fsync`` a replica *has* only what it has fsynced.
    """

    def __init__(
        self,
        log: PartitionLog,
        state: PartitionState,
        node_id: BrokerId,
        *,
        acks_fsync: bool = False,
        on_append: Callable[[Partition], None] | None = None,
    ) -> None:
        self.log = log
        self.topic_partition: TopicPartition = log.topic_partition
        self.state = state
        #: the bytes appended since the partition was opened
        self.appended_bytes = 0
        #: operations to try again when the high watermark moves or leadership changes
        self.waiters: set[Delayed[object]] = set()
        #: set when its log directory has failed, or the partition was deleted
        self.unavailable: KafkaError | None = None
        self._node_id = node_id
        self._acks_fsync = acks_fsync
        self._on_append = on_append
        self.advance_high_watermark()

    def __repr__(self) -> str:
        return f"<Partition {self.topic_partition} epoch {self.state.leader_epoch}>"

    # --- who leads ---

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.state.leader_epoch

    @property
    def is_leader(self) -> bool:
        return self.state.leader == self._node_id

    def update(self, state: PartitionState) -> None:
        """Take over what the controller decided."""
        if state.leader_epoch < self.state.leader_epoch:
            return
        self.state = state
        self.advance_high_watermark()
        self.wake()

    def check_leader(self, current_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH) -> None:
        """Refuse unless this broker leads the partition, in the epoch the client believes (KIP-320).

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH for an epoch older
                than this one, UNKNOWN_LEADER_EPOCH for a newer.
        """
        if self.unavailable is not None:
            raise self.unavailable
        if self.state.leader != self._node_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if current_leader_epoch != NO_LEADER_EPOCH and current_leader_epoch != self.state.leader_epoch:
            if current_leader_epoch < self.state.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def take_down(self, error: KafkaError) -> None:
        """Answer every request from now on, and those that wait, with `error`."""
        self.unavailable = error
        self.wake()

    # --- writing ---

    def append(self, records: Buffer, acks: int, origin: AppendOrigin) -> AppendInfo:
        """Append a producer's batches to the leader's log.

        Raises:
            KafkaError: as `check_leader`; NOT_ENOUGH_REPLICAS when acks=all cannot be met; whatever the log
                finds wrong with the batches.
        """
        self.check_leader()
        if acks == ACKS_ALL and len(self.state.isr) < self.log.config.min_insync_replicas:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition} has {len(self.state.isr)} in-sync replicas, "
                f"min.insync.replicas={self.log.config.min_insync_replicas}",
            )
        info = self.log.append_as_leader(records, self.state.leader_epoch, origin=origin)
        if not info.duplicate:
            self.appended_bytes += len(records)
            self.advance_high_watermark()
        if self._on_append is not None:
            self._on_append(self)
        return info

    def is_acknowledged(self, last_offset: Offset, acks: int) -> bool:
        """Whether what ends at `last_offset` is as safe as `acks` asks."""
        if acks == ACKS_ALL:
            return self.log.high_watermark > last_offset
        return acks == 0 or self._own_end() > last_offset

    def advance_high_watermark(self) -> None:
        """Move the high watermark to where the in-sync replicas are, and wake those who wait for it."""
        if self.state.leader != self._node_id:
            return
        committed = self._own_end()
        if committed > self.log.high_watermark:
            self.log.advance_high_watermark(committed)
            self.wake()

    def wake(self) -> None:
        for waiter in self.waiters:
            waiter.progressed()

    def _own_end(self) -> Offset:
        """The end of what this replica may count as its own."""
        return self.log.recovery_point if self._acks_fsync else self.log.log_end_offset
