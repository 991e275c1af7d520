"""The interface to the stored states of share partitions (KIP-932).

The leader of a partition and the group coordinator use a `SharePersister`. The share coordinator stores the
states. The share coordinator can be on another broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from barnabas.base.types import LeaderEpoch, Offset, TopicId, topic_id_to_str


class SharePartitionKey(NamedTuple):
    """The key of a share partition: a share group, and a partition that it consumes."""

    group: str
    topic_id: TopicId
    partition: int

    def __str__(self) -> str:
        """Return the key as FindCoordinator sends it. The hash of this text chooses the share coordinator."""
        return f"{self.group}:{topic_id_to_str(self.topic_id)}:{self.partition}"


class StateBatch(NamedTuple):
    """Contiguous records with the same delivery state and count; both offsets are inclusive."""

    first_offset: Offset
    last_offset: Offset
    #: 0 available, 2 acknowledged, 3 archiving (its dead letter is due), 4 archived; an acquired record is
    #: stored as available
    delivery_state: int
    delivery_count: int


class ShareState(NamedTuple):
    """The stored state of a share partition."""

    #: set by each initialization; fences writers that have an older one
    state_epoch: int = 0
    #: the latest leader epoch in which a leader has read or written the state; 0 before the first one
    leader_epoch: LeaderEpoch = 0
    #: all records below this offset are finished; -1 until the leader has chosen a start offset
    start_offset: Offset = -1
    #: the number of finished records from the start offset on; -1 for an unknown number (KIP-1226)
    delivery_complete_count: int = -1
    #: ordered by offset, without overlaps; contiguous batches differ in state or count
    batches: tuple[StateBatch, ...] = ()
    #: the offset in `__share_group_state` at which the state was initialized; -1 for an unknown one. It
    #: differs for each initialization of a share partition, also after its group was created again
    initialized_at: Offset = -1

    def may_be_initialized_at(self, offset: Offset) -> bool:
        """Whether the state was initialized at `offset`, or one of the two offsets is unknown (-1).

        A share coordinator of an older version of Barnabas does not send the offset, and drops it when it
        writes a snapshot.
        """
        return -1 in (offset, self.initialized_at) or offset == self.initialized_at


class CoordinatorPosition(NamedTuple):
    """The position of a group coordinator's log at the time of a request about a group.

    Each change of a group appends a record. So a request after a change has a later position than all
    requests before it. This also holds if the change deletes the group or creates it again.
    """

    #: the leader epoch of the group's `__consumer_offsets` partition; -1 for an unknown one
    epoch: LeaderEpoch = -1
    #: the end offset of this partition; -1 for an unknown one
    log_end: Offset = -1

    def is_before(self, other: CoordinatorPosition) -> bool:
        """Whether this position is lower than `other`. False if this is unknown.

        A group coordinator of an older version of Barnabas does not send the end offset.
        """
        if self.epoch != other.epoch:
            return -1 < self.epoch < other.epoch
        return -1 < self.log_end < other.log_end


#: a caller that does not know its position: no position is before or after it
UNKNOWN_POSITION = CoordinatorPosition()


class SharePersister(Protocol):
    """Reads and writes the states of share partitions. The persister retries after retriable errors.

    Each method raises KafkaError. FENCED_STATE_EPOCH and FENCED_LEADER_EPOCH are final: a later
    initialization or a later leader has fenced the caller. COORDINATOR_NOT_AVAILABLE and other retriable
    codes mean that all retries failed. Then it is unknown whether a write was stored.
    """

    async def initialize(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        start_offset: Offset,
        position: CoordinatorPosition = UNKNOWN_POSITION,
        replaced: Offset = -1,
    ) -> None:
        """Replace the state of a share partition by a new one without batches.

        The new state has the state epoch `state_epoch`, so that later writes with a lower state epoch fail.
        If `start_offset` is -1, the partition's leader chooses the start offset. Repeating a call with the
        same arguments succeeds, and changes nothing, until the partition's leader has changed the state.

        `position` is that of the group coordinator. A request with an earlier position cannot delete the new
        state. It can replace only the state whose `initialized_at` it passes as `replaced`. Between its read
        of that state and the call, the coordinator must have committed a record of the group.

        Raises:
            KafkaError: FENCED_STATE_EPOCH, the stored state epoch is higher, or it is equal and the state has
                changed since its initialization; or a request with a later position has initialized the
                state.
        """

    async def read(
        self, key: SharePartitionKey, leader_epoch: LeaderEpoch, *, retries: bool = True
    ) -> ShareState:
        """Return the state for the partition's leader in `leader_epoch`, and fence earlier leaders.

        If `retries` is False, raise a retriable error at once.

        Raises:
            KafkaError: FENCED_LEADER_EPOCH, a later leader has read or written the state; INVALID_REQUEST,
                the state is not initialized.
        """

    async def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: LeaderEpoch,
        start_offset: Offset,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
        initialized_at: Offset = -1,
    ) -> None:
        """Combine `batches` with the stored ones, and drop records below `start_offset`.

        The batches must be in the order of their offsets, without overlaps. If a record already has a state,
        the state with the higher delivery count remains, as in Kafka. At equal counts, the later delivery
        state remains, in the order available, archiving, acknowledged, archived. So a late duplicate of a
        write changes nothing. The start offset never falls; -1 keeps it. Writes of one key are stored in the
        order of the calls.

        `delivery_complete_count` is the number of finished records from the start offset on; -1 for an
        unknown number (KIP-1226). It replaces the stored number, unless the write is a late duplicate: a
        lower number, and no other change. `initialized_at` is that of the state that
        the caller has read (`ShareState.may_be_initialized_at`).

        Raises:
            KafkaError: FENCED_STATE_EPOCH, the stored state epoch is higher, or the state was initialized
                again since the caller has read it; FENCED_LEADER_EPOCH, a later
                leader has read or written the state; INVALID_REQUEST, the state is not initialized, or the
                batches are not in order or too many.
        """

    async def delete(self, key: SharePartitionKey, position: CoordinatorPosition = UNKNOWN_POSITION) -> None:
        """Delete the state of a share partition. If there is none, do nothing.

        `position` is that of the group coordinator; an unknown one deletes the state in any case.

        Raises:
            KafkaError: FENCED_STATE_EPOCH, a request with a later position has initialized the state.
        """

    async def summary(self, key: SharePartitionKey, leader_epoch: LeaderEpoch = -1) -> ShareState:
        """Return the state without its batches. If there is no state, return `ShareState()`.

        Unlike `read`, this method does not fence earlier leaders. A caller that is not the partition's leader
        passes -1 as `leader_epoch`.
        """
