"""The way from a share group's partition to its stored state (KIP-932).

The leader of a partition and the group coordinator use a `SharePersister`. The state itself is with the share
coordinator, which can be on another broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from barnabas.base.types import LeaderEpoch, Offset, TopicId, topic_id_to_str


class SharePartitionKey(NamedTuple):
    """A partition as one share group consumes it."""

    group: str
    topic_id: TopicId
    partition: int

    def __str__(self) -> str:
        """The key as FindCoordinator has it; its hash decides the share coordinator."""
        return f"{self.group}:{topic_id_to_str(self.topic_id)}:{self.partition}"


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
    state_epoch: int = 0
    #: the latest epoch of a leader that has read or written the state; 0 before the first one
    leader_epoch: LeaderEpoch = 0
    #: all records below it are finished; -1 before the leader has chosen one
    start_offset: Offset = -1
    #: the number of finished records from the start offset on; -1 for an unknown number (KIP-1226)
    delivery_complete_count: int = -1
    #: ordered by offset, without overlaps; contiguous ones differ
    batches: tuple[StateBatch, ...] = ()


class SharePersister(Protocol):
    """Reads and writes the state of share partitions, with retries of what can succeed later.

    Each method raises KafkaError. FENCED_STATE_EPOCH and FENCED_LEADER_EPOCH are final: another
    initialization or another leader came later. COORDINATOR_NOT_AVAILABLE and other retriable codes mean that
    the retries have ended: a write can have been stored or not.
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

        The batches are in order and do not overlap. Of two states of one record the higher delivery
        count remains, then the higher delivery state, as in Kafka. So a late duplicate of a write changes
        nothing. The start offset never falls; -1 leaves it. Writes of one key are stored in the order of the
        calls.

        Raises:
            KafkaError: FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH; INVALID_REQUEST, it is not initialized.
        """

    async def delete(self, key: SharePartitionKey) -> None:
        """Delete the state; a missing state is deleted already."""

    async def summary(self, key: SharePartitionKey, leader_epoch: LeaderEpoch = -1) -> ShareState:
        """The state without its batches; a missing one is `ShareState()`. Nothing is fenced.

        A caller that is not the leader has -1 as the epoch.
        """
