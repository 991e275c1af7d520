"""Computes the steps of a partition's reassignment to other brokers (KIP-455), as changes of its state.

The controller first adds the new replicas. When they are in sync, it removes the old ones. Until then the old
replicas stay, so that a reassignment can be cancelled or replaced by another one.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from barnabas.base.types import BrokerId
from barnabas.broker.controller.partition_changes import effective_min_isr, with_isr
from barnabas.broker.metadata.image import PartitionState


def is_moving(state: PartitionState) -> bool:
    """Whether the partition has a reassignment in progress."""
    return bool(state.adding or state.removing)


def target_of(state: PartitionState) -> tuple[BrokerId, ...]:
    """Return the replicas that the partition will have when its reassignment is complete."""
    return tuple(replica for replica in state.replicas if replica not in state.removing)


def origin_of(state: PartitionState) -> tuple[BrokerId, ...]:
    """Return the replicas that the partition has if its reassignment is cancelled."""
    return tuple(replica for replica in state.replicas if replica not in state.adding)


def begin(state: PartitionState, target: Sequence[BrokerId]) -> PartitionState:
    """Return the state with a reassignment to `target`. The partition may already have another reassignment.

    An earlier reassignment may have added a replica that is not in `target`. This replica leaves at the end
    of the new reassignment if it leads, or is in the ISR, the ELR or the last known ELR. If not, it leaves at
    once.
    """
    needed = {*target, *origin_of(state), *state.isr, *state.elr, *state.last_known_elr, state.leader}
    origin = origin_of(state)
    removing = tuple(replica for replica in state.replicas if replica in needed and replica not in target)
    after = state._replace(
        replicas=(*target, *removing),
        adding=tuple(replica for replica in target if replica not in origin),
        removing=removing,
    )
    return _in_new_epoch_if_smaller(state, after)


def cancel(state: PartitionState) -> PartitionState:
    """Return the state with a reassignment back to the original replicas.

    A replica that was being added may already be in the ISR. It leaves when enough other replicas are in
    sync.
    """
    return begin(state, origin_of(state))


def is_complete(state: PartitionState, min_isr: int) -> bool:
    """Whether the old replicas can be removed. False if the partition has no reassignment.

    All added replicas must be in sync, and at least `min_isr` replicas of the target, or all if it has fewer.
    For example, the replicas change from 1, 2, 3 to 1, 2, 4, and `min_isr` is 2. Then 4 must be in sync, and
    one of 1 and 2. The rule is that of Kafka since KRaft.
    """
    if not is_moving(state):
        return False
    target = target_of(state)
    staying = [replica for replica in state.isr if replica in target]
    enough = effective_min_isr(state._replace(replicas=target), min_isr)
    return set(state.adding) <= set(staying) and len(staying) >= enough


def finish(state: PartitionState, min_isr: int, electable: Container[BrokerId]) -> PartitionState | None:
    """Return the state after the end of a reassignment; None while it cannot end (`is_complete`).

    If the leader is not one of the target replicas, another leader is elected, in a new leader epoch. It is
    the first target replica that is in sync and in `electable`. Without such a replica, the result is None.
    `min_isr` is the topic's ``min.insync.replicas``.
    """
    if not is_complete(state, min_isr):
        return None
    target = target_of(state)
    isr = tuple(replica for replica in state.isr if replica in target)
    done = with_isr(state._replace(replicas=target, adding=(), removing=()), isr, min_isr)
    if state.leader in target:
        return _in_new_epoch_if_smaller(state, done)
    leader = next((replica for replica in target if replica in isr and replica in electable), None)
    if leader is None:
        return None
    return done._replace(leader=leader, leader_epoch=state.leader_epoch + 1)


def _in_new_epoch_if_smaller(before: PartitionState, after: PartitionState) -> PartitionState:
    """Return `after`, in a new leader epoch if it lacks a replica that `before`, the previous state, has.

    The removed replica may come back with an empty log before the leader learns of the removal. Without a new
    epoch, the leader would count earlier or delayed fetches of the replica for the empty log. Apache Kafka
    does the same since KRaft.
    """
    if set(before.replicas) <= set(after.replicas):
        return after
    return after._replace(leader_epoch=before.leader_epoch + 1)
