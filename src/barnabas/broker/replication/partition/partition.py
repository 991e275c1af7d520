"""One partition on this broker, and its role: leader or follower."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol

from barnabas.base.environment.blocking import Pool
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.text import logger_of
from barnabas.base.types import (
    NO_LEADER_EPOCH,
    UNKNOWN_OFFSET,
    BrokerId,
    Buffer,
    LeaderEpoch,
    Offset,
    TopicPartition,
)
from barnabas.broker.metadata.image import PartitionState
from barnabas.broker.metrics.traffic import TopicTraffic
from barnabas.broker.replication.partition.flushing import FlushSchedule
from barnabas.broker.replication.partition.follower import Follower
from barnabas.broker.replication.partition.in_sync import Proposal
from barnabas.broker.replication.partition.leader import ACKS_ALL, Leader, note_rejected
from barnabas.broker.replication.partition.progress import FollowerProgress, LeaderContext
from barnabas.broker.replication.purgatory import Watcher

if TYPE_CHECKING:
    from barnabas.broker.storage import AppendInfo, Origin, PartitionLog, ValidBatch

log = logger_of(__name__)


class AppendListener(Protocol):
    """A listener for appends to the leader's log."""

    def appended(self, new_bytes: int) -> None:
        """Handle an append of `new_bytes` bytes.

        This is called during the append. So act only in a later turn of the event loop.
        """


def _nobody(_partition: Partition) -> None:
    """Do nothing: the default listener for a partition without a manager."""


class Partition:
    """A replica on this broker, and the partition's leader, ISR and epochs. Only the event loop may use it.

    Args:
        log: the replica's log.
        state: the partition's leader, ISR and epochs, as the controller has decided.
        node_id: id of this broker.
        flush_every: number of records after which to fsync; None for the topic's ``flush.messages``.
        on_flush_due: called with this partition when records must be fsynced.
        on_isr_change_due: called with this partition when there is an ISR to `propose`.
        on_leadership_end: called with this partition when this broker's leadership has ended.
        context: for all leaderships of this broker: the other brokers, the time and the allowed lag.
        resigned: this broker may not lead in this leader epoch or an earlier one, because it has resigned. -1
            if it has not resigned.
        traffic: counters of the topic; None for new ones.
    """

    __slots__ = (
        "_context",
        "_flushes",
        "_is_leaving",
        "_node_id",
        "_on_isr_change_due",
        "_on_leadership_end",
        "_resigned",
        "_role",
        "followers",
        "log",
        "state",
        "topic_partition",
        "traffic",
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
        on_isr_change_due: Callable[[Partition], None] = _nobody,
        on_leadership_end: Callable[[Partition], None] = _nobody,
        context: LeaderContext = LeaderContext(),  # noqa: B008 (it is immutable)
        resigned: LeaderEpoch = NO_LEADER_EPOCH,
        traffic: TopicTraffic | None = None,
    ) -> None:
        self.log = log
        self.traffic = TopicTraffic() if traffic is None else traffic
        self.topic_partition: TopicPartition = log.topic_partition
        self.state = state
        #: called when the high watermark, the leadership or the log's bounds change
        self.watchers: dict[Watcher, None] = {}
        #: called after each append as leader, in the order in which they were added
        self.followers: dict[AppendListener, None] = {}
        #: the error for every request after the partition was deleted or has moved; else None
        self.unavailable: KafkaError | None = None
        #: the error for waiting and later writes after the log or its directory went offline; else None
        self.unwritable: KafkaError | None = None
        self._node_id = node_id
        self._on_isr_change_due = on_isr_change_due
        self._on_leadership_end = on_leadership_end
        self._context = context
        self._resigned = resigned
        #: whether to propose an ISR without this replica, because its log accepts no writes
        self._is_leaving = False
        self._flushes = FlushSchedule(log, flush_every, self, on_flush_due)
        self._role: Leader | Follower = Follower(log, self._flushes, self)
        log.listener = self
        self._apply_role()
        self._flushes.flush_if_due()

    def __repr__(self) -> str:
        return f"<Partition {self.topic_partition} epoch {self.state.leader_epoch}>"

    # --- who leads ---

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.state.leader_epoch

    @property
    def is_leader(self) -> bool:
        return isinstance(self._role, Leader)

    def update(self, state: PartitionState) -> None:
        """Apply the leader, ISR and epochs that the controller has decided.

        Do nothing if this broker knows a later decision.
        """
        known = self.state
        if state.leader_epoch < known.leader_epoch or state.partition_epoch < known.partition_epoch:
            return
        self.state = state
        was = self._role
        self._apply_role()
        if self._role is not was:
            # The high watermark of a new leader waits for this fsync, which a failed truncation can have left
            # out. Perhaps no append follows: a coordinator first waits for the high watermark.
            self._flushes.flush_if_due()
        if self._role is not was or state.leader_epoch != known.leader_epoch or state.leader != known.leader:
            self._wake()

    def resign(self) -> None:
        """End this broker's leadership until the controller decides a new leader epoch.

        Requests that wait for this partition fail with NOT_LEADER_OR_FOLLOWER.
        """
        self._resigned = self.state.leader_epoch
        if isinstance(self._role, Leader):
            self._role = Follower(self.log, self._flushes, self)
            self._on_leadership_end(self)
            self._wake()

    def overtaken(self, leader_epoch: LeaderEpoch) -> None:
        """End the leadership, because another broker has reported a later leader epoch.

        Do nothing if `leader_epoch` is not later than this replica's, or if this broker does not lead.
        """
        if leader_epoch > self.state.leader_epoch and isinstance(self._role, Leader):
            log.info("%r: another broker leads it from leader epoch %d on", self, leader_epoch)
            self.resign()

    def _apply_role(self) -> None:
        state = self.state
        role = self._role
        if state.leader != self._node_id or state.leader_epoch <= self._resigned:
            if not isinstance(role, Follower):
                self._role = Follower(self.log, self._flushes, self)
        elif isinstance(role, Leader) and role.state.leader_epoch == state.leader_epoch:
            role.update(state)
        else:
            self._role = Leader(self.log, state, self._node_id, self._flushes, self, self._context)
        if isinstance(role, Leader) and self._role is not role:
            self._on_leadership_end(self)
        self.check_in_sync()

    def check_leader(self, current_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH) -> None:
        """Check that this broker leads the partition, in the leader epoch of the request (KIP-320).

        If `current_leader_epoch` is -1, the request has no leader epoch. Any epoch is then valid.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, this broker does not lead; FENCED_LEADER_EPOCH, the request
                has an earlier epoch than the partition; UNKNOWN_LEADER_EPOCH, the request has a later epoch.
                If the partition is closed, the error that `close` got.
        """
        if isinstance(self._role, Follower) and self.unavailable is None:
            raise self._role.refusal()
        self.check_epoch(current_leader_epoch)

    def check_epoch(self, current_leader_epoch: LeaderEpoch) -> None:
        """Check the leader epoch of a request that a follower can also serve.

        If `current_leader_epoch` is -1, the request has no leader epoch. Any epoch is then valid.

        Raises:
            KafkaError: FENCED_LEADER_EPOCH, the request has an earlier epoch than the partition;
                UNKNOWN_LEADER_EPOCH, the request has a later epoch. If the partition is closed, the error
                that `close` got.
        """
        if self.unavailable is not None:
            raise self.unavailable
        if current_leader_epoch != NO_LEADER_EPOCH and current_leader_epoch != self.state.leader_epoch:
            if current_leader_epoch < self.state.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def follower(self, leader_epoch: LeaderEpoch) -> Follower | None:
        """Return the follower role in `leader_epoch`.

        Return None if this replica leads, is in another leader epoch, or if the partition is closed
        (`close`).
        """
        role = self._role
        if (
            isinstance(role, Leader)
            or self.state.leader_epoch != leader_epoch
            or self.unavailable is not None
        ):
            return None
        return role

    def followed(
        self, replica: BrokerId, broker_epoch: int, offset: Offset, log_start: Offset = UNKNOWN_OFFSET
    ) -> None:
        """Record the progress of a follower: it has all records of this leader's log before `offset`.

        Before this call, call `check_leader` with the follower's leader epoch. Also make sure that the
        follower's log does not diverge from this log. The high watermark may move.

        Args:
            replica: broker id of the follower.
            broker_epoch: broker epoch of the follower (KIP-903).
            offset: fetch offset of the follower, which is the end of the follower's log.
            log_start: start of the follower's log; -1 if the fetch request does not contain the start.

        Raises:
            KafkaError: UNKNOWN_LEADER_EPOCH, this broker does not know the follower as a replica;
                NOT_LEADER_OR_FOLLOWER, this broker does not lead, or the fetch is from before the follower's
                last start; OFFSET_OUT_OF_RANGE, the follower's log ends later than this one.
        """
        role = self._role
        if isinstance(role, Follower):
            raise role.refusal()
        role.followed(replica, broker_epoch, offset, log_start)

    @property
    def is_under_min_isr(self) -> bool:
        """Whether this broker leads, and the ISR has fewer replicas than ``min.insync.replicas``.

        If the partition itself has fewer replicas than that: whether any of its replicas is out of sync.
        """
        return isinstance(self._role, Leader) and self._role.is_under_min_isr

    @property
    def has_committed_former_epochs(self) -> bool:
        """Whether the high watermark has reached the start of this leader epoch (KIP-207).

        While it has not, the high watermark may be lower than that of an earlier leader. For a follower, the
        result is always true.
        """
        return not isinstance(self._role, Leader) or self.log.high_watermark >= self._role.epoch_start

    @property
    def progress(self) -> Collection[FollowerProgress]:
        """Progress of each follower, if this broker leads; otherwise empty."""
        role = self._role
        return role.followers if isinstance(role, Leader) else ()

    @property
    def successors(self) -> Collection[BrokerId]:
        """The brokers that could have been elected instead of this one; empty if this one does not lead."""
        role = self._role
        return role.successors if isinstance(role, Leader) else ()

    def in_sync_with(self, offset: Offset) -> list[FollowerProgress]:
        """Return the in-sync followers whose log contains `offset` or ends there; empty if not the leader."""
        role = self._role
        return role.in_sync_with(offset) if isinstance(role, Leader) else []

    def check_in_sync(self) -> None:
        """If this broker leads, advance the high watermark, and report an ISR change to propose.

        If the log is offline, request an ISR without this replica again (`leave_in_sync`).

        Call it after a change of the brokers, and periodically. It costs little.
        """
        if self.log.failure is not None:
            self.leave_in_sync()
        role = self._role
        if isinstance(role, Leader):
            role.check_in_sync()

    @property
    def low_watermark(self) -> Offset:
        """The lowest log start offset of all replicas that are live or can be elected (KIP-107).

        The offset is -1 if one of these replicas has not reported its log start, or if this broker does not
        lead.
        """
        return self._role.low_watermark if isinstance(self._role, Leader) else UNKNOWN_OFFSET

    def low_watermark_moved(self) -> None:
        """Notify the watchers, because records were removed from all replicas (`LeaderListener`)."""
        self._wake()

    def isr_change_due(self) -> None:
        """Tell the manager that the leader has an ISR change to propose (`LeaderListener`)."""
        self._on_isr_change_due(self)

    def propose(self) -> Proposal | None:
        """Return an ISR to propose to the controller; None if there is none or the partition is unavailable.

        After `leave_in_sync`, the result is the ISR without this replica. In all other cases a leader returns
        its own proposal, if a change is due, and a follower returns None. A leader makes no other proposal
        until `settle_proposal`. Until then, the high watermark waits for all replicas in the proposal.
        """
        role = self._role
        if self.unavailable is not None:
            return None
        is_leaving, self._is_leaving = self._is_leaving, False
        if is_leaving and self._may_leave:
            others = tuple((broker, -1) for broker in self.state.isr if broker != self._node_id)
            return Proposal(self.state.leader_epoch, self.state.partition_epoch, others)
        return role.propose() if isinstance(role, Leader) else None

    def leave_in_sync(self) -> None:
        """Request an ISR without this replica, because its log accepts no writes. Return at once.

        The next `propose` returns this ISR for the controller. If this replica leads, the controller then
        elects another in-sync replica. If another broker leads, that leader no longer waits for this replica.
        When this replica can write again, it catches up and joins the ISR again.

        Do nothing if this replica is not in the ISR, or is the last replica in the ISR.
        """
        if self._may_leave and self.unavailable is None:
            self._is_leaving = True
            self._on_isr_change_due(self)

    @property
    def _may_leave(self) -> bool:
        state = self.state
        return self._node_id in state.isr and len(state.isr) > 1 and state.leader_epoch > self._resigned

    def settle_proposal(
        self, proposal: Proposal, error: ErrorCode | None, state: PartitionState | None = None
    ) -> None:
        """Apply the outcome of a proposal.

        If the answer to a proposal of `leave_in_sync` was lost, `propose` returns it again. For other
        proposals, do nothing if this broker no longer leads in the proposal's leader epoch.

        Args:
            proposal: a result of `propose`.
            error: the controller's answer; None if the answer was lost.
            state: the partition's new leader, ISR and epochs, if the controller has agreed (NONE).
        """
        role = self._role
        if error is None and self._node_id not in proposal.members:
            self._is_leaving = True
        if not isinstance(role, Leader) or proposal.leader_epoch != self.state.leader_epoch:
            return
        if state is not None:
            self.update(state)
        role.settle(proposal, error)

    def close(self, error: KafkaError) -> None:
        """Close the partition: waiting and later requests get `error`."""
        self.unavailable = error
        self.log.listener = None
        self.refuse_writes(error)

    def refuse_writes(self, error: KafkaError) -> None:
        """Reject waiting and later writes with `error`, because the log accepts no more writes.

        Reads continue.
        """
        self.unwritable = error
        self._flushes.cancel()
        self._wake()

    # --- writing ---

    def append(
        self, records: Buffer, acks: int, origin: Origin, valid: ValidBatch | None = None
    ) -> AppendInfo:
        """Append the one batch in `records` to the leader's log.

        If the log already has the batch, append nothing, and return its offsets with `duplicate` set.

        Args:
            records: the batch.
            acks: acks that the produce request requires.
            origin: who made the batch, for example a client or a coordinator.
            valid: the validated batch, if a thread has already validated it; None to validate it now.

        Raises:
            LongValidation: the validation would take too long for the event loop; nothing has changed. The
                caller must validate the batch in a thread, and call this method again with `valid`.
            KafkaError: NOT_LEADER_OR_FOLLOWER, this broker does not lead; NOT_ENOUGH_REPLICAS, too few
                replicas are in sync for acks=all; KAFKA_STORAGE_ERROR, the log is offline; CORRUPT_MESSAGE or
                another error, the batch is invalid. If the partition is closed, the error that `close`
                got.
        """
        try:
            if self.unavailable is not None:
                raise self.unavailable
            role = self._role
            if isinstance(role, Follower):
                raise role.refusal()
            info = role.append(records, acks, origin, valid)
        except KafkaError as error:
            self._not_appended(error)
            raise
        if info.duplicate:
            self.traffic.produces += 1
        else:
            self._appended(info.last_offset - info.base_offset + 1, len(records))
        return info

    def append_plain(
        self, records: Buffer, acks: int, flags: int, now_ms: int, has_keys: bool = False
    ) -> AppendInfo | None:
        """Append a batch by a short path if it is plain (`barnabas.broker.storage.plain`).

        A plain batch is valid, fits into the active segment, and needs no conversion. If the batch is not
        plain, return None and change nothing. The caller must then call `append`.

        Args:
            records: the batch.
            acks: acks that the produce request requires.
            flags: bits of the batch attributes that this request may set.
            now_ms: present time, in milliseconds.
            has_keys: whether it is certain that all records have keys. If false, no batch for a compacted
                topic is plain.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the disk failed.
        """
        if self.unavailable is not None:
            return None
        log = self.log
        before = log.log_end_offset
        try:
            info = self._role.append_plain(records, acks, flags, now_ms, has_keys)
        except KafkaError as error:
            self._not_appended(error)
            raise
        if info is not None:
            self._appended(log.log_end_offset - before, len(records))
        return info

    def _appended(self, new_records: int, new_bytes: int) -> None:
        traffic = self.traffic
        traffic.produces += 1
        traffic.bytes_in += new_bytes
        traffic.messages_in += new_records
        if self.followers:
            for follower in self.followers:
                follower.appended(new_bytes)

    def _not_appended(self, error: KafkaError) -> None:
        self.traffic.produces += 1
        self.traffic.failed_produces += 1
        if error.code == ErrorCode.KAFKA_STORAGE_ERROR and self.is_leader and self.unavailable is None:
            self.leave_in_sync()

    def note_rejected(self, records: Buffer, code: ErrorCode) -> None:
        """Record that the broker rejected a batch before `append`, with the error `code`.

        Until the producer sends this batch again, the log rejects the producer's later batches. Do nothing if
        this broker does not lead the partition. Also do nothing if the batch is invalid, has no producer id,
        or is not the producer's next one.
        """
        if self.is_leader:
            note_rejected(self.log, records, code)

    def is_acknowledged(self, last_offset: Offset, acks: int) -> bool:
        """Whether the batch that ends at `last_offset` has the acks that the request requires."""
        if self.log.high_watermark > last_offset:
            return True
        return acks != ACKS_ALL and (acks == 0 or self._flushes.safe_end() > last_offset)

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """Return the largest leader epoch that is at most `epoch`, and its end offset in this log.

        If all epochs of the log are later than `epoch`, return `epoch` and the start offset of the log's
        first epoch. Return (-1, -1) if this replica knows no epochs, or if `epoch` is later than it knows. A
        leader also knows its own epoch, even if the log has no records of that epoch.
        """
        return self._role.end_offset_for_epoch(epoch)

    def committed(self, new_bytes: int) -> None:
        """Notify the watchers of the commit of `new_bytes` more bytes (`CommitListener`)."""
        if self.watchers:
            self._wake(new_bytes)

    def bounds_moved(self) -> None:
        """Notify the watchers of a new start or end of the log (`BoundsListener`).

        If retention has sealed the active segment, also request the fsync that otherwise an append requests.
        """
        self._wake()
        if self.log.files.has_rolled:
            self.flush_if_due()

    def _wake(self, new_bytes: int = 0) -> None:
        for watcher in self.watchers:
            watcher.progressed(new_bytes)

    # --- fsync ---

    @property
    def log_dir(self) -> str:
        """The path of the log directory with the log."""
        return self.log.files.env.path

    def flush_if_due(self) -> None:
        """Request an fsync if the settings require one, even if no more records are appended."""
        self._flushes.flush_if_due()

    async def flush(self, disk: Pool) -> None:
        """Fsync the records appended so far, in a thread.

        Do nothing if the log accepts no more writes. After the fsync, a leader advances the high watermark.

        This method raises no KafkaError. If the fsync fails and the log has gone offline, waiting requests
        get an error, and this replica leaves the ISR. If the log is still online, the broker tries again
        soon.

        Args:
            disk: threads that fsync.
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
                self.leave_in_sync()
            return
        if isinstance(self._role, Leader):
            self._role.advance_high_watermark()
