"""What the leader of a partition does: it appends, and says up to where records are committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from barnabas.errors import ErrorCode, KafkaError
from barnabas.metadata.image import PartitionState
from barnabas.replication.partition.flushing import FlushSchedule
from barnabas.types import Buffer, LeaderEpoch, Offset

if TYPE_CHECKING:
    from barnabas.storage import AppendInfo, Origin, PartitionLog, ValidBatch

ACKS_ALL = -1


class CommitListener(Protocol):
    """What is told that records were committed."""

    def committed(self, new_bytes: int) -> None:
        """So many bytes have passed the high watermark."""


class Leader:
    """This broker's leadership of a partition, for one leader epoch.

    The high watermark is the end of what every in-sync replica has: consumers see nothing past it, and a
    produce with acks=all waits for it. A replica *has* what is due to be fsynced (by ``flush.messages`` or
    ``barnabas.acks.fsync``) only when that is done.

    Args:
        log: the leader's own log.
        state: what the controller decided.
        flushes: the fsyncs that the log is due.
        listener: told when the high watermark has moved.
    """

    __slots__ = ("_flushes", "_listener", "_log", "_uncommitted_bytes", "state")

    def __init__(
        self,
        log: PartitionLog,
        state: PartitionState,
        flushes: FlushSchedule[Any],
        listener: CommitListener,
    ) -> None:
        self.state = state
        self._log = log
        self._flushes = flushes
        self._listener = listener
        self._uncommitted_bytes = 0

    def append(
        self, records: Buffer, acks: int, origin: Origin, valid: ValidBatch | None = None
    ) -> AppendInfo:
        """As `Partition.append`."""
        log = self._log
        state = self.state
        if acks == ACKS_ALL and len(state.isr) < log.config.min_insync_replicas:
            self._check_in_sync()
        info = log.append_as_leader(records, state.leader_epoch, origin=origin, valid=valid)
        if not info.duplicate:
            self._uncommitted_bytes += len(records)
            self._flushes.appended()
            self.advance_high_watermark()
        return info

    def advance_high_watermark(self) -> None:
        """Move the high watermark to where the in-sync replicas are."""
        if self._log.advance_high_watermark(self._flushes.safe_end()):
            # Too much when only a part of it has passed: whoever waits for bytes reads to make sure.
            new_bytes, self._uncommitted_bytes = self._uncommitted_bytes, 0
            self._listener.committed(new_bytes)

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """As `Partition.end_offset_for_epoch`.

        The log learns of an epoch by its first batch; the epochs since then, up to the one in which this
        broker leads, have written nothing.
        """
        log = self._log
        own = self.state.leader_epoch
        if epoch <= log.latest_epoch or epoch > own:
            return log.end_offset_for_epoch(epoch)
        return (epoch if epoch == own else log.latest_epoch), log.log_end_offset

    def _check_in_sync(self) -> None:
        # A topic cannot ask for more replicas than it has.
        needed = min(self._log.config.min_insync_replicas, len(self.state.replicas))
        if len(self.state.isr) < needed:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self._log.topic_partition} has {len(self.state.isr)} replicas in sync, "
                f"{needed} are needed",
            )
