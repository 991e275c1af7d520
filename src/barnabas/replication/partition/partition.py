"""One partition as this broker holds it, and its role: leader or follower."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.environment.blocking import Pool
from barnabas.errors import ErrorCode, KafkaError
from barnabas.metadata.image import PartitionState
from barnabas.replication.partition.flushing import FlushSchedule
from barnabas.replication.partition.follower import Follower
from barnabas.replication.partition.leader import ACKS_ALL, Leader
from barnabas.replication.purgatory import Watcher
from barnabas.text import logger_of
from barnabas.types import NO_LEADER_EPOCH, BrokerId, Buffer, LeaderEpoch, Offset, TopicPartition

if TYPE_CHECKING:
    from barnabas.storage import AppendInfo, Origin, PartitionLog, ValidBatch

log = logger_of(__name__)


class Partition:
    """A replica and what the cluster says of its partition. Owned by the event loop.

    Args:
        log: the replica's log.
        state: what the controller decided.
        node_id: this broker.
        flush_every: fsync after so many records, when that is fewer than the topic's ``flush.messages``.
        on_flush_due: told when records are due to be fsynced.
    """

    __slots__ = (
        "_flushes",
        "_node_id",
        "_role",
        "log",
        "state",
        "topic_partition",
        "unavailable",
        "unwritable",
        "watchers",
    )

    def __init__(
        self,
        log: PartitionLog,
        state: PartitionState,
        node_id: BrokerId,
        *,
        flush_every: int | None = None,
        on_flush_due: Callable[[Partition], None],
    ) -> None:
        self.log = log
        self.topic_partition: TopicPartition = log.topic_partition
        self.state = state
        #: told when the high watermark, leadership or the log's bounds move
        self.watchers: dict[Watcher, None] = {}
        #: what every request is answered with, once the topic was deleted
        self.unavailable: KafkaError | None = None
        #: what whoever waits for a write is answered with, once the log or its directory is offline
        self.unwritable: KafkaError | None = None
        self._node_id = node_id
        self._flushes = FlushSchedule(log, flush_every, self, on_flush_due)
        self._role: Leader | Follower = Follower(log)
        log.listener = self
        self._take_role()

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
        self._take_role()
        self._wake()

    def _take_role(self) -> None:
        state = self.state
        role = self._role
        if state.leader != self._node_id:
            if not isinstance(role, Follower):
                self._role = Follower(self.log)
        elif isinstance(role, Leader) and role.state.leader_epoch == state.leader_epoch:
            role.state = state
        else:
            self._role = Leader(self.log, state, self._flushes, self)
        self.advance_high_watermark()

    def check_leader(self, current_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH) -> None:
        """Refuse unless this broker leads the partition, in the epoch the client believes (KIP-320).

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH for an epoch older
                than this one, UNKNOWN_LEADER_EPOCH for a newer.
        """
        if self.unavailable is not None:
            raise self.unavailable
        if isinstance(self._role, Follower):
            raise self._role.refusal()
        if current_leader_epoch != NO_LEADER_EPOCH and current_leader_epoch != self.state.leader_epoch:
            if current_leader_epoch < self.state.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def take_down(self, error: KafkaError) -> None:
        """Answer every request from now on, and those that wait, with `error`."""
        self.unavailable = error
        self.log.listener = None
        self.refuse_writes(error)

    def refuse_writes(self, error: KafkaError) -> None:
        """The log takes no more writes: answer those that wait for one with `error`. It is still read."""
        self.unwritable = error
        self._flushes.cancel()
        self._wake()

    # --- writing ---

    def append(
        self, records: Buffer, acks: int, origin: Origin, valid: ValidBatch | None = None
    ) -> AppendInfo:
        """Append batches to the leader's log.

        Raises:
            LongValidation: as `PartitionLog.append_as_leader`.
            KafkaError: as `check_leader`; NOT_ENOUGH_REPLICAS when acks=all cannot be met; whatever the log
                finds wrong with the batches.
        """
        if self.unavailable is not None:
            raise self.unavailable
        role = self._role
        if isinstance(role, Follower):
            raise role.refusal()
        return role.append(records, acks, origin, valid)

    def is_acknowledged(self, last_offset: Offset, acks: int) -> bool:
        """Whether what ends at `last_offset` is as safe as `acks` asks."""
        if acks == ACKS_ALL:
            return self.log.high_watermark > last_offset
        return acks == 0 or self._flushes.safe_end() > last_offset

    def advance_high_watermark(self) -> None:
        """Move the high watermark to where the in-sync replicas are, if this broker leads."""
        if isinstance(self._role, Leader):
            self._role.advance_high_watermark()

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """The largest leader epoch not above `epoch` and where it ends; (-1, -1) when unknown (KIP-279)."""
        return self._role.end_offset_for_epoch(epoch)

    def committed(self, new_bytes: int) -> None:
        """So many bytes have passed the high watermark (`CommitListener`)."""
        if self.watchers:
            self._wake(new_bytes)

    def bounds_moved(self) -> None:
        """The log begins or ends elsewhere (`BoundsListener`)."""
        self._wake()

    def _wake(self, new_bytes: int = 0) -> None:
        for watcher in self.watchers:
            watcher.progressed(new_bytes)

    # --- fsync ---

    async def flush(self, disk: Pool) -> None:
        """Fsync what has been appended so far, in a thread.

        Never raises. If the log has gone offline, whoever waits is told; else it is tried again soon.
        """
        if self.unwritable is not None:
            return
        try:
            await self._flushes.flush(disk)
        except KafkaError as error:
            if self.log.is_offline:
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # else it was closed or deleted
                    log.error("%s could not be fsynced: %s", self.topic_partition, error)
                self.refuse_writes(error)
            return
        self.advance_high_watermark()
