"""One partition as this broker holds it: who leads, who is in sync, and up to where records are committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.environment.blocking import Pool
from barnabas.errors import ErrorCode, KafkaError
from barnabas.metadata.image import PartitionState
from barnabas.replication.purgatory import Watcher
from barnabas.text import logger_of
from barnabas.types import NO_LEADER_EPOCH, BrokerId, Buffer, LeaderEpoch, Offset, TopicPartition

if TYPE_CHECKING:
    from barnabas.storage import AppendInfo, Origin, PartitionLog, ValidBatch

log = logger_of(__name__)

ACKS_ALL = -1


class Partition:
    """A replica and what the cluster says of its partition. Owned by the event loop.

    The high watermark is the end of what every in-sync replica has: consumers see nothing past it, and a
    produce with acks=all waits for it. A replica *has* what is due to be fsynced (by ``flush.messages`` or
    ``barnabas.acks.fsync``) only when that is done.

    Args:
        log: the replica's log.
        state: what the controller decided.
        node_id: this broker.
        flush_every: fsync after so many records, when that is fewer than the topic's ``flush.messages``.
        on_flush_due: told when records are due to be fsynced.
    """

    __slots__ = (
        "_flush_due",
        "_flush_every",
        "_flush_timer",
        "_node_id",
        "_on_flush_due",
        "_uncommitted_bytes",
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
        self._uncommitted_bytes = 0
        #: told when the high watermark, leadership or the log's bounds move
        self.watchers: dict[Watcher, None] = {}
        #: what every request is answered with, once the topic was deleted
        self.unavailable: KafkaError | None = None
        #: what whoever waits for a write is answered with, once the log or its directory is offline
        self.unwritable: KafkaError | None = None
        self._node_id = node_id
        self._flush_every = flush_every
        self._on_flush_due = on_flush_due
        #: what lies below must be fsynced before it counts
        self._flush_due: Offset = 0
        self._flush_timer: asyncio.TimerHandle | None = None
        log.listener = self
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
        self._wake()

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
        self.log.listener = None
        self.refuse_writes(error)

    def refuse_writes(self, error: KafkaError) -> None:
        """The log takes no more writes: answer those that wait for one with `error`. It is still read."""
        self.unwritable = error
        if self._flush_timer is not None:
            self._flush_timer.cancel()
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
        self.check_leader()
        log = self.log
        state = self.state
        if acks == ACKS_ALL and len(state.isr) < log.config.min_insync_replicas:
            self._check_in_sync()
        info = log.append_as_leader(records, state.leader_epoch, origin=origin, valid=valid)
        if not info.duplicate:
            self._uncommitted_bytes += len(records)
            self._schedule_flush()
            self._commit()
        return info

    def _check_in_sync(self) -> None:
        # A topic cannot ask for more replicas than it has.
        needed = min(self.log.config.min_insync_replicas, len(self.state.replicas))
        if len(self.state.isr) < needed:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition} has {len(self.state.isr)} replicas in sync, {needed} are needed",
            )

    def is_acknowledged(self, last_offset: Offset, acks: int) -> bool:
        """Whether what ends at `last_offset` is as safe as `acks` asks."""
        if acks == ACKS_ALL:
            return self.log.high_watermark > last_offset
        return acks == 0 or self._own_end() > last_offset

    def advance_high_watermark(self) -> None:
        """Move the high watermark to where the in-sync replicas are, and wake those who wait for it."""
        if self.state.leader == self._node_id:
            self._commit()

    def _commit(self) -> None:
        if self.log.advance_high_watermark(self._own_end()):
            # Too much when only a part of it has passed: whoever waits for bytes reads to make sure.
            new_bytes, self._uncommitted_bytes = self._uncommitted_bytes, 0
            if self.watchers:
                self._wake(new_bytes)

    def _own_end(self) -> Offset:
        """The end of what this replica may count as its own."""
        log = self.log
        due = self._flush_due
        return log.log_end_offset if not due or due <= log.recovery_point else log.recovery_point

    def bounds_moved(self) -> None:
        """The log begins or ends elsewhere (`BoundsListener`)."""
        self._wake()

    def _wake(self, new_bytes: int = 0) -> None:
        for watcher in self.watchers:
            watcher.progressed(new_bytes)

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """The largest leader epoch not above `epoch` and where it ends; (-1, -1) when unknown (KIP-279).

        The log learns of an epoch by its first batch; the epochs since then, up to the one in which this
        broker leads, have written nothing.
        """
        log = self.log
        if not self.is_leader or epoch <= log.latest_epoch or epoch > self.leader_epoch:
            return log.end_offset_for_epoch(epoch)
        return (epoch if epoch == self.leader_epoch else log.latest_epoch), log.log_end_offset

    # --- fsync ---

    async def flush(self, disk: Pool) -> None:
        """Fsync what has been appended so far, in a thread.

        Never raises. If the log has gone offline, whoever waits is told; else it is tried again soon.
        """
        if self.unwritable is not None:
            return
        try:
            flush = self.log.prepare_flush()
            if flush is not None:
                await disk.run(flush.run)
                self.log.complete_flush(flush)
        except KafkaError as error:
            if self.log.is_offline:
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # else it was closed or deleted
                    log.error("%s could not be fsynced: %s", self.topic_partition, error)
                self.refuse_writes(error)
            elif self._flush_timer is None:
                loop = asyncio.get_running_loop()
                self._flush_timer = loop.call_later(_FLUSH_AGAIN_SECONDS, self._flush_now)
            return
        self.advance_high_watermark()

    def _schedule_flush(self) -> None:
        """See to it that records reach the disk in time (``flush.messages``, ``flush.ms``)."""
        log = self.log
        config = log.config
        every = config.flush_messages if self._flush_every is None else self._flush_every
        if log.log_end_offset - log.recovery_point >= every:
            self._flush_due = log.log_end_offset
            self._on_flush_due(self)
        elif log.has_rolled:
            self._on_flush_due(self)
        elif config.flush_ms < _NEVER_MS and self._flush_timer is None:
            self._flush_timer = asyncio.get_running_loop().call_later(config.flush_ms / 1000, self._flush_now)

    def _flush_now(self) -> None:
        self._flush_timer = None
        self._on_flush_due(self)


#: what could not be fsynced for want of files or memory is tried again after so long
_FLUSH_AGAIN_SECONDS = 0.5
#: a flush.ms beyond this is as good as never, and more than a timer takes
_NEVER_MS = 2**48
