"""The follower of a partition: it copies the leader's log, and rejects requests for the leader."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import Buffer, LeaderEpoch, Offset
from barnabas.broker.replication.partition.flushing import FlushSchedule
from barnabas.broker.storage.truncation import truncate_fully_and_start_at, truncate_to
from barnabas.kafka.records.batch import check_crc, parse_header

if TYPE_CHECKING:
    from barnabas.broker.replication.partition.leader import CommitListener
    from barnabas.broker.storage import PartitionLog
    from barnabas.broker.storage.truncation import Truncation


class Follower:
    """The role of this broker's replica while it does not lead the partition.

    Only the fetcher for the partition's leader writes to the log (`barnabas.broker.replication.following`).

    Args:
        log: the replica's log.
        flushes: fsyncs of the log.
        listener: called when the high watermark has moved.
    """

    __slots__ = ("_flushes", "_listener", "_log", "_uncommitted_bytes")

    def __init__(self, log: PartitionLog, flushes: FlushSchedule[Any], listener: CommitListener) -> None:
        self._log = log
        self._flushes = flushes
        self._listener = listener
        self._uncommitted_bytes = 0

    def refusal(self) -> KafkaError:
        """Return NOT_LEADER_OR_FOLLOWER, the error for a request that only the leader can serve."""
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def append_plain(self, records: Buffer, acks: int, flags: int, now_ms: int, has_keys: bool) -> None:
        """Do nothing and return None: the caller then calls `Partition.append`, which rejects the batch."""

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        return self._log.end_offset_for_epoch(epoch)

    def append(self, records: Buffer, leader_epoch: LeaderEpoch) -> None:
        """Append records that the leader has sent.

        Args:
            records: one or more batches; the last one can be incomplete.
            leader_epoch: leader epoch in which this broker fetched them.

        Raises:
            KafkaError: CORRUPT_MESSAGE, the records are damaged, do not follow the log's end, or contain no
                complete batch; KAFKA_STORAGE_ERROR, the log is offline.
        """
        log = self._log
        start = log.log_start_offset
        if start == log.log_end_offset:
            # DeleteRecords may have moved the leader's start into a batch, which is sent whole
            first = parse_header(records)
            if first.base_offset < start <= first.last_offset:
                check_crc(first, records)
                truncate_fully_and_start_at(log, first.base_offset)  # it is empty: there is little to sync
        try:
            if log.append_as_follower(records, leader_epoch) is None:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"{log.topic_partition}: the leader sent no whole batch up to epoch {leader_epoch}",
                )
        except KafkaError:
            if log.log_start_offset < start:
                with suppress(KafkaError):
                    truncate_fully_and_start_at(log, start)
            raise
        if log.log_start_offset < start:  # what lies before was committed, and stays deleted
            log.stored_start = log.log_start_offset
            log.advance_high_watermark(start)
            log.advance_log_start(start)
        self._uncommitted_bytes += len(records)
        self._flushes.appended()

    def follow_watermark(self, high_watermark: Offset) -> None:
        """Move the high watermark to the leader's, at most to the end of this log.

        Do not call this after a reply with a divergence, because a truncation may remove the records below
        the new high watermark (KAFKA-14704).
        """
        if self._log.advance_high_watermark(high_watermark):
            new_bytes, self._uncommitted_bytes = self._uncommitted_bytes, 0
            self._listener.committed(new_bytes)

    def offset_to_truncate_to(self, epoch: LeaderEpoch, end_offset: Offset) -> Offset:
        """Return the offset to truncate to, if the leader's `epoch` ends at `end_offset` (KIP-101, KIP-279).

        The offset can be too high if this log does not know the epoch. The next fetch then corrects it.
        """
        own_epoch, own_end = self._log.end_offset_for_epoch(epoch)
        end = self._log.log_end_offset
        if own_epoch == epoch:
            return min(own_end, end_offset, end)
        if own_epoch >= 0:
            return min(own_end, end)
        return min(end_offset, end)

    def truncate_to(self, offset: Offset, truncation: Truncation | None = None) -> None:
        """Truncate the log to `offset`.

        The truncation is not on disk yet. Do not use the log before this follower `is_durable`.

        Args:
            offset: first offset to remove.
            truncation: the truncation to `offset`, if the caller has computed it; None if this call must
                read the batches to compute it.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the log directory is offline; CORRUPT_MESSAGE, the remaining part
                would be damaged.
        """
        truncate_to(self._log, offset, sync=False, truncation=truncation)
        self._flushes.truncated()

    def start_at(self, offset: Offset) -> None:
        """Remove all records. The empty log continues at `offset`. Do not use it before it `is_durable`."""
        truncate_fully_and_start_at(self._log, offset, sync=False)
        self._flushes.truncated()

    # --- fsync ---

    @property
    def is_durable(self) -> bool:
        """Whether all records that require an fsync, and any truncation, are on disk."""
        return self._flushes.is_durable

    def durable(self) -> asyncio.Future[None]:
        """Return a future that is done when the log `is_durable`, or when it accepts no more writes."""
        return self._flushes.durable()
