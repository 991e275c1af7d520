"""The leader of a partition: it appends records, and decides which are committed."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    UNKNOWN_OFFSET,
    BrokerId,
    Buffer,
    LeaderEpoch,
    Offset,
)
from barnabas.broker.metadata.image import PartitionState
from barnabas.broker.replication.partition.flushing import FlushSchedule
from barnabas.broker.replication.partition.in_sync import InSyncReplicas, Proposal
from barnabas.broker.replication.partition.progress import FollowerProgress, LeaderContext
from barnabas.broker.storage.plain import PlainLimits, append_plain
from barnabas.kafka.records.batch import check_crc, parse_header

if TYPE_CHECKING:
    from barnabas.broker.storage import AppendInfo, Origin, PartitionLog, ValidBatch

ACKS_ALL = -1


def note_rejected(log: PartitionLog, records: Buffer, code: ErrorCode) -> None:
    """Record in the log that a batch was rejected, because its producer will send it again.

    Until then, the log accepts no later batch of the producer. Do nothing if the batch is invalid, has no
    producer id, or is not the producer's next one.

    Args:
        log: log of the partition, which does not have the batch.
        records: the batch.
        code: the error that the producer gets.
    """
    with contextlib.suppress(KafkaError):  # an invalid batch would have been rejected anyway
        header = parse_header(records)
        check_crc(header, records)
        if header.producer_id != NO_PRODUCER_ID:
            log.producers.note_rejection(header, code)


class CommitListener(Protocol):
    """A listener for committed records."""

    def committed(self, new_bytes: int) -> None:
        """Handle the commit of `new_bytes` more bytes; 0 if the number is not known."""


class LeaderListener(CommitListener, Protocol):
    """An object that a `Leader` notifies of commits, of ISRs to propose, and of a new low watermark."""

    def low_watermark_moved(self) -> None:
        """Handle a change of `Leader.low_watermark`."""

    def isr_change_due(self) -> None:
        """Handle a new ISR change to propose to the controller."""


class Leader:
    """This broker's leadership of a partition, for one leader epoch.

    The high watermark is the end of the records that every in-sync replica has. Consumers see no later
    records, and a produce with acks=all waits for it. A replica *has* a record that must be fsynced
    (``flush.messages``, ``barnabas.acks.fsync``) only after the fsync. The high watermark does not advance
    while fewer than ``min.insync.replicas`` are in sync (KIP-966). Without this rule, records that only one
    replica has could count as committed.

    Args:
        log: the leader's own log.
        state: the partition's leader, ISR and epochs, as the controller has decided.
        node_id: id of this broker.
        flushes: fsyncs of the log.
        listener: its methods are called when records are committed, when the low watermark has changed, and
            when there is an ISR to propose.
        context: the other brokers, and the time.
    """

    __slots__ = (
        "_context",
        "_epoch",
        "_flushes",
        "_has_min_isr",
        "_in_sync",
        "_last_in_sync",
        "_limits",
        "_listener",
        "_log",
        "_low_watermark",
        "_never_flushes",
        "_node_id",
        "_uncommitted_bytes",
        "epoch_start",
        "state",
    )

    def __init__(
        self,
        log: PartitionLog,
        state: PartitionState,
        node_id: BrokerId,
        flushes: FlushSchedule[Any],
        listener: LeaderListener,
        context: LeaderContext,
    ) -> None:
        self._log = log
        self._node_id = node_id
        self._flushes = flushes
        self._listener = listener
        self._context = context
        #: bytes appended in this epoch and not committed yet
        self._uncommitted_bytes = 0
        #: limits of plain batches with the present settings and state; None until the next one
        self._limits: PlainLimits | None = None
        #: made with `_limits`: whether enough replicas are in sync for acks=all
        self._has_min_isr = False
        #: made with `_limits`: whether no append makes an fsync due
        self._never_flushes = False
        self._epoch = state.leader_epoch
        #: the first offset of this leader epoch; earlier records may be from other leaders
        self.epoch_start: Offset = log.log_end_offset
        #: after an election of the longest log: the replicas that were in sync before it
        self._last_in_sync = frozenset(state.last_known_elr)
        #: the followers; None if no other broker has a replica
        self._in_sync: InSyncReplicas | None = None
        #: the low watermark at the listener's last call
        self._low_watermark: Offset = log.log_start_offset
        self.update(state)

    def update(self, state: PartitionState) -> None:
        """Apply the replicas and the ISR that the controller has decided for this leader epoch."""
        self.state = state
        self._limits = None
        if self._in_sync is not None:
            self._in_sync.update(state)
        elif state.replicas != (self._node_id,):
            self._in_sync = InSyncReplicas(self._log, state, self._node_id, self._context, self.epoch_start)

    # --- followers ---

    def followed(self, replica: BrokerId, broker_epoch: int, offset: Offset, log_start: Offset) -> None:
        """Store the progress that a follower's fetch shows.

        The fetch may advance the high watermark, let the follower join the ISR, or move the low watermark.
        The method then calls the `LeaderListener`.

        Args:
            replica: broker id of the follower.
            broker_epoch: broker epoch of the follower.
            offset: end of the follower's log.
            log_start: start of the follower's log; -1 if the fetch does not contain it.

        Raises:
            KafkaError: UNKNOWN_LEADER_EPOCH, this leader does not know the follower as a replica;
                NOT_LEADER_OR_FOLLOWER, the fetch is from before the follower's last start;
                OFFSET_OUT_OF_RANGE, the follower's log ends later than this one.
        """
        in_sync = self._in_sync
        if in_sync is None:  # the follower may know of a reassignment that this broker has not seen yet
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if in_sync.fetched(replica, broker_epoch, offset, log_start):
            self.advance_high_watermark()
        if in_sync.maybe_expand(replica):
            self._listener.isr_change_due()
        self._adopt_log_start()
        self._check_low_watermark()

    @property
    def followers(self) -> Collection[FollowerProgress]:
        """Progress of each follower; empty if this is the only replica."""
        return () if self._in_sync is None else self._in_sync.followers

    @property
    def successors(self) -> Collection[BrokerId]:
        """The brokers that the controller could have elected instead of this one; empty for the only replica.

        The controller elects a leader from the ISR or the ELR. It adds a broker to the ISR only if this
        leader has proposed the broker. It moves a broker to the ELR only from the ISR. So this leader knows
        all brokers in both. The result does not include brokers that only an unclean election could choose.
        """
        if self._in_sync is None:
            return ()
        return self._in_sync.electable - {self._node_id}

    def in_sync_with(self, offset: Offset) -> list[FollowerProgress]:
        """Return the in-sync followers whose log contains `offset` or ends there."""
        return [] if self._in_sync is None else self._in_sync.in_sync_with(offset)

    def check_in_sync(self) -> None:
        """Find out which followers are in sync now, and report changes to the `LeaderListener`.

        Call this periodically and when brokers have changed, because a follower may lag by now, or its broker
        may have started or stopped. The method can advance the high watermark. It calls `isr_change_due` if
        there is a new ISR to propose to the controller. It calls `low_watermark_moved` if the low watermark
        has changed.
        """
        in_sync = self._in_sync
        if in_sync is not None:
            in_sync.update_caught_up()
        self.advance_high_watermark()
        if in_sync is not None:
            if in_sync.is_change_due():
                self._listener.isr_change_due()
            self._adopt_log_start()
            self._check_low_watermark()

    @property
    def low_watermark(self) -> Offset:
        """Offset below which no replica has records (KIP-107).

        Replicas count if their broker is alive, or if they can be elected. The offset is -1 until all these
        replicas have reported their log starts.
        """
        start = self._log.log_start_offset
        return start if self._in_sync is None else self._in_sync.min_log_start(start)

    def _adopt_log_start(self) -> None:
        """After an election of the longest log, delete what a replica has deleted that was in sync before it.

        The deletion may have been acknowledged (DeleteRecords), and this replica was perhaps not in sync
        then. Do nothing until the deleted records count as committed here, too.
        """
        if not self._last_in_sync:
            return
        log = self._log
        starts = (each.log_start for each in self.followers if each.broker_id in self._last_in_sync)
        start = max((each for each in starts if each <= log.high_watermark), default=UNKNOWN_OFFSET)
        if log.log_start_offset < start:
            log.note_start(start)

    def _check_low_watermark(self) -> None:
        low = self.low_watermark
        if low != self._low_watermark:
            self._low_watermark = low
            self._listener.low_watermark_moved()

    def propose(self) -> Proposal | None:
        """Return the next proposal to the controller; None if there is none."""
        return None if self._in_sync is None else self._in_sync.propose()

    def settle(self, proposal: Proposal, error: ErrorCode | None) -> None:
        """Apply the controller's answer to a proposal of `propose`. The high watermark may advance.

        Args:
            proposal: the ISR that was proposed.
            error: the error code in the answer; None if the controller's decision is unknown.
        """
        in_sync = self._in_sync
        if in_sync is not None and in_sync.settle(proposal, error):
            self.advance_high_watermark()
            if error == ErrorCode.NONE and in_sync.is_change_due():
                self._listener.isr_change_due()

    # --- the log ---

    def append(
        self, records: Buffer, acks: int, origin: Origin, valid: ValidBatch | None = None
    ) -> AppendInfo:
        """Append the one batch in `records`; see `Partition.append`."""
        log = self._log
        state = self.state
        if acks == ACKS_ALL and len(state.isr) < log.config.min_insync_replicas:
            self._require_min_isr(records)
        info = log.append_as_leader(records, state.leader_epoch, origin=origin, valid=valid)
        if not info.duplicate:
            self._appended(len(records))
        return info

    def append_plain(
        self, records: Buffer, acks: int, flags: int, now_ms: int, has_keys: bool
    ) -> AppendInfo | None:
        """Append a batch by a short path if it is plain; see `Partition.append_plain`.

        Return None, and change nothing, if the batch is not plain, or if too few replicas are in sync for
        acks=all. The caller must then call `append`.
        """
        log = self._log
        config = log.config
        limits = self._limits
        if limits is None or limits.config is not config or limits.has_keys is not has_keys:
            limits = self._limits = PlainLimits(config, has_keys)
            self._has_min_isr = len(self.state.isr) >= config.min_insync_replicas
            self._never_flushes = self._flushes.is_never_due
        if acks == ACKS_ALL and not self._has_min_isr:
            return None
        before = log.log_end_offset
        info = append_plain(log, records, self._epoch, limits, flags, now_ms)
        if info is not None:
            if (
                self._never_flushes
                and self._in_sync is None
                and log.high_watermark == before
                and not log.producers.ended_transactions
                and not log.files.has_rolled
            ):  # the only replica has committed all earlier records: now it commits the batch
                log.high_watermark = log.log_end_offset
                self._listener.committed(len(records))
            else:
                self._appended(len(records))
        return info

    def _appended(self, new_bytes: int) -> None:
        self._uncommitted_bytes += new_bytes
        end = self._flushes.appended()
        in_sync = self._in_sync
        if in_sync is None or not in_sync.counted:
            self._advance_to(end)

    def advance_high_watermark(self) -> None:
        """Move the high watermark to the end of the records that all in-sync replicas have.

        Do nothing while fewer than ``min.insync.replicas`` are in sync (`is_under_min_isr`).
        """
        self._advance_to(self._flushes.safe_end())

    def _advance_to(self, end: Offset) -> None:
        """Move the high watermark to the end of the records that all in-sync replicas have.

        Do nothing while fewer than ``min.insync.replicas`` are in sync. `end` is the end of the records that
        this replica has.
        """
        log = self._log
        before = log.high_watermark
        in_sync = self._in_sync
        if in_sync is not None:
            if self.is_under_min_isr:
                return
            end = in_sync.committed_end(end)
        if log.advance_high_watermark(end):
            new_bytes = 0
            if before >= self.epoch_start:
                new_bytes = self._uncommitted_bytes
                left = log.log_end_offset - log.high_watermark
                if left:  # about as much of the bytes as of the offsets
                    moved = log.high_watermark - before
                    new_bytes = max(1, new_bytes * moved // (moved + left))
                self._uncommitted_bytes -= new_bytes
            self._listener.committed(new_bytes)

    @property
    def is_under_min_isr(self) -> bool:
        """Whether the ISR has fewer replicas than ``min.insync.replicas``.

        If the partition itself has fewer replicas than that: whether any of its replicas is out of sync.

        If the ELR has members, the ISR has fewer replicas than the controller's ``min.insync.replicas``. This
        leader may still know an earlier, lower value: the answer to AlterPartition can overtake the image. A
        member of the ELR can lead at any time, so it must not miss a committed record.
        """
        if self.state.elr:
            return True
        # A topic cannot ask for more replicas than it has.
        needed = min(self._log.config.min_insync_replicas, len(self.state.replicas))
        return len(self.state.isr) < needed

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """Return the result of `Partition.end_offset_for_epoch` on the leader.

        The log knows only epochs with records. This leader also knows its own epoch before the first append.
        For example, the log ends at offset 50, its last records have epoch 3, and this broker leads in epoch
        6. Then epoch 6 gives (6, 50), epochs 4 and 5 give (3, 50), and epoch 7 gives (-1, -1). If the log has
        no records with an epoch, epoch 4 gives (4, 50).
        """
        log = self._log
        own = self.state.leader_epoch
        if epoch <= log.latest_epoch or epoch > own:
            return log.end_offset_for_epoch(epoch)
        is_known = epoch < own and log.latest_epoch != NO_LEADER_EPOCH
        return (log.latest_epoch if is_known else epoch), log.log_end_offset

    def _require_min_isr(self, records: Buffer) -> None:
        if self.is_under_min_isr:
            note_rejected(self._log, records, ErrorCode.NOT_ENOUGH_REPLICAS)
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self._log.topic_partition} has {len(self.state.isr)} of its {len(self.state.replicas)} "
                f"replicas in sync, min.insync.replicas={self._log.config.min_insync_replicas}",
            )
