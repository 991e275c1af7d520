"""Who leads a partition."""

from __future__ import annotations

from collections.abc import Collection

from barnabas.metadata.image import PartitionState
from barnabas.types import NO_BROKER, BrokerId


def elect(
    state: PartitionState, alive: Collection[BrokerId], restarted: Collection[BrokerId] = ()
) -> PartitionState | None:
    """The state a partition should have, or None when it may stay as it is.

    The leader is the first in-sync replica, in the order of assignment, that is alive; no other may lead,
    since it might lack what was acknowledged. A leader that has `restarted` begins a new epoch even when it
    leads again: what it had not flushed may be gone, and an epoch must not hold two different records at one
    offset (KIP-101).
    """
    if state.leader in alive and state.leader not in restarted:
        return None
    leader = next((broker for broker in state.replicas if broker in state.isr and broker in alive), NO_BROKER)
    if leader == NO_BROKER and state.leader == NO_BROKER:
        return None
    return state._replace(leader=leader, leader_epoch=state.leader_epoch + 1)
