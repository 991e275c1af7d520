"""Tracks a leader's followers in one leader epoch: which are in sync, and which ISR to propose (KIP-497).

Only the controller changes the ISR. When the leader proposes to add a replica, the leader treats it as in
sync at once. The reason is that the controller may accept the proposal long before its answer arrives. So the
high watermark waits for the *maximal* ISR: the decided one, and every replica proposed since.

`InSyncReplicas` is separate from `Leader`, because the leader of a partition without followers needs none.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import UNKNOWN_OFFSET, BrokerId, LeaderEpoch, Offset
from barnabas.broker.metadata.image import BrokerState, PartitionState
from barnabas.broker.replication.partition.progress import NEVER, FollowerProgress, LeaderContext

#: errors after which the state is unchanged, and the partition epoch was right
_NOT_APPLIED = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)


class LeaderLog(Protocol):
    """The leader's log, with which the followers are compared."""

    log_start_offset: Offset
    high_watermark: Offset
    log_end_offset: Offset


class Proposal(NamedTuple):
    """An ISR that this broker proposes to the controller, as the leader or to remove its own replica."""

    leader_epoch: LeaderEpoch
    #: partition epoch of the state that the proposal changes
    partition_epoch: int
    #: brokers with their broker epochs; -1 if the leader does not know the epoch (KIP-903)
    isr: tuple[tuple[BrokerId, int], ...]

    @property
    def members(self) -> tuple[BrokerId, ...]:
        return tuple(broker for broker, _ in self.isr)


class InSyncReplicas:
    """Tracks a leader's followers, and the ISR to propose, for one leader epoch.

    Args:
        log: the leader's log.
        state: the partition's leader, ISR and epochs, as the controller has decided.
        node_id: id of this broker.
        context: the other brokers, and the time.
        epoch_start: offset at which the leader epoch begins in the log.
    """

    __slots__ = (
        "_context",
        "_epoch_start",
        "_followers",
        "_joining",
        "_log",
        "_node_id",
        "_proposed",
        "_state",
        "_unsettled",
        "counted",
        "electable",
    )

    def __init__(
        self,
        log: LeaderLog,
        state: PartitionState,
        node_id: BrokerId,
        context: LeaderContext,
        epoch_start: Offset,
    ) -> None:
        self._log = log
        self._node_id = node_id
        self._context = context
        self._epoch_start = epoch_start
        self._followers: dict[BrokerId, FollowerProgress] = {}
        #: followers that may join the ISR, and will be proposed
        self._joining: frozenset[BrokerId] = frozenset()
        #: the proposal that the controller has not answered yet
        self._proposed: Proposal | None = None
        #: brokers in earlier proposals, if it is unknown whether the controller has accepted these
        self._unsettled: frozenset[BrokerId] = frozenset()
        #: the followers of the maximal ISR
        self.counted: tuple[FollowerProgress, ...] = ()
        #: the maximal ISR and the ELR: the controller elects a leader from these
        self.electable: frozenset[BrokerId] = frozenset()
        self._state = state
        self.update(state)

    def update(self, state: PartitionState) -> None:
        """Apply the replicas and the ISR that the controller has decided for this leader epoch."""
        if state.partition_epoch != self._state.partition_epoch:
            # No proposal that names an earlier partition epoch can be carried out any more.
            self._proposed = None
            self._unsettled = frozenset()
        self._state = state
        known, now = self._followers, self._context.now()
        self._followers = {
            broker: known.get(broker) or FollowerProgress(broker, now if broker in state.isr else NEVER)
            for broker in state.replicas
            if broker != self._node_id
        }
        self._joining = self._joining.intersection(self._followers).difference(state.isr)
        self._count()

    def fetched(self, replica: BrokerId, broker_epoch: int, offset: Offset, log_start: Offset) -> bool:
        """Store the progress that a follower's fetch shows.

        Return whether the high watermark may advance now.

        Args:
            replica: the follower.
            broker_epoch: epoch of the follower's registration, from the fetch.
            offset: fetch offset, where the follower's log ends.
            log_start: offset at which the follower's log starts; -1 if the fetch does not contain it.

        Raises:
            KafkaError: UNKNOWN_LEADER_EPOCH, the follower is not a known replica; NOT_LEADER_OR_FOLLOWER, the
                fetch is from before the follower's last start; OFFSET_OUT_OF_RANGE, the leader's log ends
                before `offset`.
        """
        progress = self._followers.get(replica)
        if progress is None:  # the follower may know of a reassignment that this broker has not seen yet
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        registered = self._context.brokers().get(replica)
        if broker_epoch < progress.broker_epoch or (
            registered is not None and broker_epoch < registered.epoch
        ):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # the fetch is from before its last start
        end = self._log.log_end_offset
        if offset > end:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        progress.fetched(broker_epoch, offset, log_start, end, self._context.now())
        return progress in self.counted

    @property
    def followers(self) -> Collection[FollowerProgress]:
        """The progress of each follower."""
        return self._followers.values()

    def committed_end(self, own_end: Offset) -> Offset:
        """Return the end of the records that this broker and all followers in `counted` have.

        The high watermark waits for the followers in `counted`. This broker has records up to `own_end`. The
        result is -1 if one of these followers has not fetched since its last start.
        """
        end = own_end
        for follower in self.counted:
            end = min(end, follower.end if self._is_present(follower) else UNKNOWN_OFFSET)
        return end

    def in_sync_with(self, offset: Offset) -> list[FollowerProgress]:
        """Return the followers in the ISR whose log contains `offset` or ends there."""
        return [
            follower
            for broker, follower in self._followers.items()
            if broker in self._state.isr and max(follower.log_start, 0) <= offset <= follower.end
        ]

    def min_log_start(self, own_start: Offset) -> Offset:
        """Return the lowest log start of all replicas with live brokers, and of this one (KIP-107).

        `own_start` is the log start of this broker's replica.

        Replicas that can be elected count even if their brokers are away, because as leaders they would bring
        deleted records back. The result is -1 if one of these replicas has not reported its log start.
        """
        alive, electable = self._context.brokers(), self.electable
        least = own_start
        for broker, follower in self._followers.items():
            if follower.log_start < least and (broker in alive or broker in electable):
                least = follower.log_start
        return least

    def is_change_due(self) -> bool:
        """Whether the leader should propose an ISR now."""
        if self._proposed is not None:
            return False
        state = self._state
        if self._unsettled or state.recovering:
            return True
        isr = state.isr
        # A loop over two or three followers: this is asked for at each fetch of one that is not in sync.
        for follower in self._followers.values():
            if follower.broker_id in isr:
                if self._is_lagging(follower):
                    return True
            elif self._may_join(follower):
                return True
        return False

    def maybe_expand(self, replica: BrokerId) -> bool:
        """Whether to propose the follower `replica`, which has just fetched, for the ISR.

        The result is False if the follower is in the ISR already, if it may not join yet, or while a proposal
        is pending.

        If the result is True, the high watermark waits for this follower from now on. Without this wait, the
        follower on a busy partition could be behind the high watermark again when the proposal is sent.
        """
        if (
            replica in self._state.isr
            or self._proposed is not None
            or not self._may_join(self._followers[replica])
        ):
            return False
        self._joining |= {replica}
        self._count()
        return True

    def update_caught_up(self) -> None:
        """Update the followers for the time that has passed since the last call.

        - A follower that has all records counts as caught up now. It has nothing to fetch.
        - If `maybe_expand` has accepted a follower that may no longer join the ISR, the high watermark no
          longer waits for this follower. An example is a follower that has lagged for too long since.
        """
        now, end = self._context.now(), self._log.log_end_offset
        for follower in self._followers.values():
            if follower.end >= end and self._is_present(follower):
                follower.caught_up_at = now
        if self._joining:
            self._joining = frozenset(b for b in self._joining if self._may_join(self._followers[b]))
            self._count()

    def propose(self) -> Proposal | None:
        """Return the next proposal to the controller; None if no change is due.

        The proposal stays pending until `settle`, or until `update` gets another partition epoch. Until
        then, all calls return None.
        """
        if not self.is_change_due():
            self._joining = frozenset()
            self._count()
            return None
        state = self._state
        followers = self._followers
        stay = [
            broker
            for broker in state.isr
            if broker == self._node_id or (broker in followers and not self._is_lagging(followers[broker]))
        ]
        join = [f.broker_id for f in followers.values() if f.broker_id not in state.isr and self._may_join(f)]
        self._joining = frozenset()
        self._proposed = Proposal(
            state.leader_epoch,
            state.partition_epoch,
            tuple((broker, self._epoch_of(broker)) for broker in (*stay, *join)),
        )
        self._count()
        return self._proposed

    def settle(self, proposal: Proposal, error: ErrorCode | None) -> bool:
        """Apply the controller's answer to a proposal.

        Return False if `update` has replaced the proposal meanwhile. `error` is None if the controller's
        decision is unknown. If the controller has agreed (NONE), its answer has the new ISR: call
        `update` first.
        """
        if proposal is not self._proposed:
            return False
        self._proposed = None
        if error == ErrorCode.NONE:
            self._unsettled = frozenset()
        elif error not in _NOT_APPLIED:
            # The controller may still carry out the proposal, or has done so, and the image will show the
            # change. Until the partition epoch moves, the high watermark waits for the proposed replicas.
            # Meanwhile the leader can send its next proposal.
            self._unsettled = self._unsettled.union(proposal.members)
        self._count()
        return True

    def _count(self) -> None:
        members = {*self._state.isr, *self._joining, *self._unsettled}
        if self._proposed is not None:
            members.update(self._proposed.members)
        self.counted = tuple(f for broker, f in self._followers.items() if broker in members)
        self.electable = frozenset(members.union(self._state.elr))

    def _is_present(self, follower: FollowerProgress) -> bool:
        """Whether a follower's broker is registered, and the follower has fetched since this registration."""
        registered = self._context.brokers().get(follower.broker_id)
        return registered is not None and registered.epoch == follower.broker_epoch

    def _is_lagging(self, follower: FollowerProgress) -> bool:
        if follower.end >= self._log.log_end_offset and self._is_present(follower):
            return False
        return self._context.now() - follower.caught_up_at > self._context.max_lag()

    def _may_join(self, follower: FollowerProgress) -> bool:
        """Whether a follower may join the ISR.

        The follower must fulfil all of these conditions:

        - It has reached the high watermark and the start of the leader epoch, in its present broker epoch.
        - It does not lag for longer than ``replica.lag.time.max.ms``, so it would not have to leave again.
          With fewer than ``min.insync.replicas`` in sync, the high watermark does not advance, and a follower
          that lags can reach it (KAFKA-19996).
        - It knows which records were deleted. If it did not, it would bring them back as the next leader.
        - Its broker is running, and is not isolated.
        """
        if follower.end < max(self._log.high_watermark, self._epoch_start) or not self._is_present(follower):
            return False
        if UNKNOWN_OFFSET < follower.log_start < self._log.log_start_offset:
            return False
        registered = self._context.brokers()[follower.broker_id]
        if registered.state is not BrokerState.RUNNING or registered.is_isolated:
            return False
        return not self._is_lagging(follower)

    def _epoch_of(self, broker: BrokerId) -> int:
        if broker != self._node_id:
            return self._followers[broker].broker_epoch
        registered = self._context.brokers().get(broker)
        return -1 if registered is None else registered.epoch
