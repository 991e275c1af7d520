"""The follower of a partition: it copies the leader's log, and rejects requests for the leader."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import Buffer, LeaderEpoch, Offset
from barnabas.broker.replication.partition.flushing import FlushSchedule
from barnabas.kafka.records.batch import check_crc, parse_header

if TYPE_CHECKING:
    from barnabas.broker.replication.partition.leader import CommitListener
    from barnabas.broker.storage import PartitionLog
    from barnabas.broker.storage.truncation import Truncation


class Follower:
    """This broker's replica while another broker, or none, leads the partition.

    The one writer of its log is the fetcher of the partition's leader
    (`barnabas.broker.replication.following`).

    Args:
        log: the replica's log.
        flushes: the fsyncs that the log is due.
        listener: told when the high watermark has moved.
    """

    __slots__ = ("_flushes", "_listener", "_log", "_uncommitted_bytes")

    def __init__(self, log: PartitionLog, flushes: FlushSchedule[Any], listener: CommitListener) -> None:
        self._log = log
        self._flushes = flushes
        self._listener = listener
        self._uncommitted_bytes = 0

    def refusal(self) -> KafkaError:
        """Return the answer to a request that only the leader may serve."""
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def append_plain(self, records: Buffer, acks: int, flags: int, now_ms: int) -> None:
        """Leave the refusal to `Partition.append`."""

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        return self._log.end_offset_for_epoch(epoch)

    def append(self, records: Buffer, leader_epoch: LeaderEpoch) -> None:
        """Append records that the leader of an epoch has sent.

        Raises:
            KafkaError: as `PartitionLog.append_as_follower`; CORRUPT_MESSAGE when there is nothing to append
                in the records.
        """
        log = self._log
        start = log.log_start_offset
        if start == log.log_end_offset:
            # DeleteRecords may have moved the leader's start into a batch, which is sent whole
            first = parse_header(records)
            if first.base_offset < start <= first.last_offset:
                check_crc(first, records)
                log.truncate_fully_and_start_at(first.base_offset)  # it is empty: there is little to sync
        try:
            if log.append_as_follower(records, leader_epoch) is None:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"{log.topic_partition}: the leader sent no whole batch up to epoch {leader_epoch}",
                )
        except KafkaError:
            if log.log_start_offset < start:
                with suppress(KafkaError):
                    log.truncate_fully_and_start_at(start)
            raise
        if log.log_start_offset < start:  # what lies before was committed, and stays deleted
            log.stored_start = log.log_start_offset
            log.advance_high_watermark(start)
            log.advance_log_start(start)
        self._uncommitted_bytes += len(records)
        self._flushes.appended()

    def follow_watermark(self, high_watermark: Offset) -> None:
        """Move the high watermark to the leader's, as far as this log has it.

        Never after a reply that tells of a divergence: what the watermark would cover may be cut off
        (KAFKA-14704).
        """
        if self._log.advance_high_watermark(high_watermark):
            new_bytes, self._uncommitted_bytes = self._uncommitted_bytes, 0
            self._listener.committed(new_bytes)

    def offset_to_truncate_to(self, epoch: LeaderEpoch, end_offset: Offset) -> Offset:
        """Return the offset at which this log diverges from one where `epoch` ends at `end_offset` (KIP-101,
        279).

        The offset may be too high if this log does not know the epoch: then the next fetch corrects it.
        """
        own_epoch, own_end = self._log.end_offset_for_epoch(epoch)
        end = self._log.log_end_offset
        if own_epoch == epoch:
            return min(own_end, end_offset, end)
        if own_epoch >= 0:
            return min(own_end, end)
        return min(end_offset, end)

    def truncate_to(self, offset: Offset, truncation: Truncation | None = None) -> None:
        """Cut the log off before `offset`; it `is_durable` when the disk knows, and not to be used before.

        Args:
            offset: the first that goes.
            truncation: as for `PartitionLog.truncate_to`.

        Raises:
            KafkaError: as `PartitionLog.truncate_to`.
        """
        self._log.truncate_to(offset, sync=False, truncation=truncation)
        self._flushes.truncated()

    def start_at(self, offset: Offset) -> None:
        """Go on, empty, at `offset`; as `truncate_to`."""
        self._log.truncate_fully_and_start_at(offset, sync=False)
        self._flushes.truncated()

    # --- fsync ---

    @property
    def is_durable(self) -> bool:
        """Whether the log is on disk as far as it is due to be."""
        return self._flushes.is_durable

    def durable(self) -> asyncio.Future[None]:
        """Resolved when the log `is_durable`, or when it takes no more writes."""
        return self._flushes.durable()
