"""The way from a share group's partition to its stored state (KIP-932).

The leader of a partition and the group coordinator use a `SharePersister`. The state itself is with the share
coordinator, which can be on another broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from barnabas.base.types import LeaderEpoch, Offset, TopicId


class SharePartitionKey(NamedTuple):
    """A partition as one share group consumes it."""

    group: str
    topic_id: TopicId
    partition: int


class StateBatch(NamedTuple):
    """Records of one delivery state; both offsets are inclusive."""

    first_offset: Offset
    last_offset: Offset
    #: 0 available, 2 acknowledged, 4 archived; an acquired record is stored as available
    delivery_state: int
    delivery_count: int


class ShareState(NamedTuple):
    """The stored state of a share partition."""

    #: grows with each initialization: it fences writers from before that
    state_epoch: int
    #: the epoch of the leader that read or wrote last; -1 before the first one
    leader_epoch: LeaderEpoch
    #: all records below it are finished; -1 before the leader has chosen one
    start_offset: Offset
    #: the number of finished records from the start offset on; -1 for an unknown number (KIP-1226)
    delivery_complete_count: int
    #: ordered by offset, without overlaps
    batches: tuple[StateBatch, ...]


class SharePersister(Protocol):
    """Reads and writes the state of share partitions, with retries of what can succeed later.

    Each method raises KafkaError. FENCED_STATE_EPOCH and FENCED_LEADER_EPOCH are final: another initialization
    or another leader came later. COORDINATOR_NOT_AVAILABLE and other retriable codes mean that the retries
    have ended: a write can have been stored or not.
    """

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: Offset) -> None:
        """Begin a new state without batches; -1 lets the partition's leader choose the start offset.

        The same initialization again succeeds.

        Raises:
            KafkaError: FENCED_STATE_EPOCH, the stored state epoch is higher.
        """

    async def read(self, key: SharePartitionKey, leader_epoch: LeaderEpoch) -> ShareState:
        """The state, for the leader of `leader_epoch`; from now on earlier leaders are fenced.

        Raises:
            KafkaError: FENCED_LEADER_EPOCH, a later leader has read or written the state; INVALID_REQUEST, it
                is not initialized.
        """

    async def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: LeaderEpoch,
        start_offset: Offset,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> None:
        """Store `batches` over those that are stored, and drop what is below `start_offset`.

        A start offset of -1 leaves the stored one. Writes of one key are stored in the order of the calls.

        Raises:
            KafkaError: FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH; INVALID_REQUEST, it is not initialized.
        """

    async def delete(self, key: SharePartitionKey) -> None:
        """Delete the state; a missing state is deleted already."""

    async def summary(self, key: SharePartitionKey, leader_epoch: LeaderEpoch = -1) -> ShareState:
        """The state without its batches. -1 as the epoch stands for a caller that is not the leader.

        Nothing is fenced. A missing state has the start offset -1.

        Raises:
            KafkaError: FENCED_LEADER_EPOCH.
        """
