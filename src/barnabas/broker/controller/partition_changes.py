"""Computes a partition's new state after changes of its replicas, in pure functions without I/O.

The rules are those of KIP-966 (eligible leader replicas), as in Apache Kafka's KRaft controller. While fewer
replicas than the minimum are in sync, the high watermark does not advance. So a replica that leaves the ISR
at that time has all committed records: it joins the ELR, from which a leader can come. A replica that stopped
uncleanly may have lost records, and leaves both ISR and ELR. When both are empty, `last_known_elr` has their
last members.

These functions do not change `partition_epoch`. It is the version of the stored state, which the metadata
store itself raises.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from barnabas.base.types import NO_BROKER, BrokerId
from barnabas.broker.metadata.image import PartitionState


class Eligibility(NamedTuple):
    """Four sets of brokers: those that may be in sync, may be elected, are leaving, or may have lost records.

    A set applies to all replicas of the brokers in it. The method `without` makes an exception for one
    partition. A broker is leaving if it is shutting down or isolated from the others.
    """

    #: may stay in an ISR: they run, and have not restarted since they joined it
    in_sync: frozenset[BrokerId]
    #: may be elected: they run
    electable: frozenset[BrokerId]
    #: are shutting down or isolated: they still lead only where no other replica can
    leaving: frozenset[BrokerId] = frozenset()
    #: may have lost records since they joined an ISR
    unclean: frozenset[BrokerId] = frozenset()

    def without(self, failed: frozenset[BrokerId]) -> Eligibility:
        """Return the sets for a partition whose replicas on the brokers in `failed` cannot be used.

        The brokers in `failed` may not be in sync or lead, and count as having lost records.
        """
        return Eligibility(
            self.in_sync - failed, self.electable - failed, self.leaving - failed, self.unclean | failed
        )


def effective_min_isr(state: PartitionState, min_isr: int) -> int:
    """Return the smallest number of in-sync replicas with which the high watermark can advance.

    `min_isr` is the topic's ``min.insync.replicas``. A partition with fewer replicas needs all of them.
    """
    return max(1, min(min_isr, len(state.replicas)))


def with_isr(
    state: PartitionState, isr: tuple[BrokerId, ...], min_isr: int, unclean: frozenset[BrokerId] = frozenset()
) -> PartitionState:
    """Return `state` with `isr` as its ISR, and with the ELR and last known ELR that this causes (KIP-966).

    - If `isr` has at least `effective_min_isr` members, the ELR and the last known ELR become empty. But the
      last known ELR stays while the leader is recovering, because the leader needs it (`elect_longest_log`).
    - If `isr` has fewer members, replicas that leave the ISR join the ELR. A replica in `unclean` does not:
      it leaves the ISR or the ELR, and joins the last known ELR.

    `min_isr` is the topic's ``min.insync.replicas``.
    """
    elr: tuple[BrokerId, ...] = ()
    known: set[BrokerId] = set()
    if len(isr) < effective_min_isr(state, min_isr):
        before = {*state.isr, *state.elr}
        elr = tuple(r for r in state.replicas if r in before and r not in isr and r not in unclean)
        known = before.union(state.last_known_elr)
    elif state.recovering:
        known = {*state.last_known_elr}
    last_known_elr = tuple(r for r in state.replicas if r in known and r not in isr and r not in elr)
    return state._replace(isr=isr, elr=elr, last_known_elr=last_known_elr)


def settle(state: PartitionState, min_isr: int, eligible: Eligibility) -> PartitionState:
    """Remove replicas that may not be in sync from the ISR, and replace a leader that may not lead.

    Return the new state, or `state` itself if nothing changes. If the partition has no leader that may lead,
    the new leader is the first of these that exists:

    1. a replica in the ISR that can lead;
    2. a replica in the ELR that can lead: it joins the ISR;
    3. the present leader, if it is shutting down or isolated.

    If there is none of them, the partition has no leader until an election (see `candidates`).

    Args:
        state: present state of the partition.
        min_isr: the topic's ``min.insync.replicas``.
        eligible: the brokers whose replicas may be in sync and may lead.
    """
    if _is_settled(state, min_isr, eligible) or not state.is_known:
        return state
    after = _settle(state, min_isr, eligible.in_sync, eligible.electable, eligible.unclean)
    if after.leader == NO_BROKER and state.leader in eligible.leaving:
        stays = eligible.leaving.intersection(state.isr)
        after = _settle(
            state, min_isr, eligible.in_sync | stays, eligible.electable | {state.leader}, eligible.unclean
        )
    return state if after == state else after


def _is_settled(state: PartitionState, min_isr: int, eligible: Eligibility) -> bool:
    if state.leader not in eligible.in_sync or not eligible.in_sync.issuperset(state.isr):
        return False
    if not state.elr and not state.last_known_elr:
        return len(state.isr) >= min_isr or len(state.isr) == len(state.replicas)
    return len(state.isr) < effective_min_isr(state, min_isr) and eligible.unclean.isdisjoint(state.elr)


def _settle(
    state: PartitionState,
    min_isr: int,
    in_sync: frozenset[BrokerId],
    electable: frozenset[BrokerId],
    unclean: frozenset[BrokerId],
) -> PartitionState:
    stay = tuple(replica for replica in state.isr if replica in in_sync)
    after = with_isr(state, stay, min_isr, unclean)
    if state.leader in stay and state.leader in electable:
        return after
    leader = _first_of(after.replicas, after.isr, electable)
    if leader == NO_BROKER:
        leader = _first_of(after.replicas, after.elr, electable)
        if leader != NO_BROKER:
            after = with_isr(after, (*after.isr, leader), min_isr)
    if leader == NO_BROKER and state.leader == NO_BROKER:
        return after
    return after._replace(leader=leader, leader_epoch=state.leader_epoch + 1)


def _first_of(
    order: Collection[BrokerId], members: Collection[BrokerId], electable: frozenset[BrokerId]
) -> BrokerId:
    return next((replica for replica in order if replica in members and replica in electable), NO_BROKER)


def candidates(
    state: PartitionState, electable: frozenset[BrokerId], *, is_unclean_allowed: bool = False
) -> tuple[BrokerId, ...]:
    """Return the replicas that take part in an unclean election; an empty tuple if there is no election now.

    The replicas that were last in sync come first. Of equally long logs, theirs must lead: another log can
    lack the last deletions (DeleteRecords), which would then be undone.

    There is no election in these cases:

    - The partition has a leader, or no valid state in the metadata store.
    - The ISR or the ELR has members. They certainly have all records, and the partition waits for one of
      them.
    - A member of the last known ELR is not in `electable`. This member may have the most records.

    With `is_unclean_allowed`, only the first case prevents an election.

    All replicas in `electable` take part: a replica that left the ISR earlier may have more records than the
    ISR's last members.
    """
    if state.leader != NO_BROKER or not state.is_known:
        return ()
    if not is_unclean_allowed:
        if state.isr or state.elr:
            return ()
        if not electable.issuperset(state.last_known_elr):
            return ()
    return tuple(replica for replica in last_in_sync_first(state, state.replicas) if replica in electable)


def last_in_sync(state: PartitionState) -> set[BrokerId]:
    """Return the members of the ISR, the ELR and the last known ELR."""
    return {*state.isr, *state.elr, *state.last_known_elr}


def last_in_sync_first(state: PartitionState, brokers: Iterable[BrokerId]) -> list[BrokerId]:
    """Return `brokers` in their order, but first those that were last in sync."""
    last = last_in_sync(state)
    return sorted(brokers, key=lambda broker: broker not in last)


def awaited_replicas(state: PartitionState, electable: frozenset[BrokerId]) -> tuple[BrokerId, ...]:
    """Return the brokers for which a partition without a leader waits, if it allows no loss of records.

    - If the ISR or the ELR has members, return all their members. Each of them certainly has all records, so
      the partition needs only one.
    - If both are empty, return the members of the last known ELR that are not in `electable`. The partition
      needs all of them.
    - If the partition has a leader, or no valid state in the metadata store, return an empty tuple.
    """
    if state.leader != NO_BROKER or not state.is_known:
        return ()
    sure = {*state.isr, *state.elr}
    return tuple(each for each in state.replicas if each in (sure or {*state.last_known_elr} - electable))


def elect_uncleanly(state: PartitionState, leader: BrokerId) -> PartitionState:
    """Return the state with `leader` as the leader and only in-sync replica.

    This leader may lack committed records. `recovering` is set (KIP-704) if the partition has more than one
    replica. A single replica cannot recover from another.
    """
    return state._replace(
        isr=(leader,),
        elr=(),
        last_known_elr=(),
        leader=leader,
        leader_epoch=state.leader_epoch + 1,
        recovering=len(state.replicas) > 1,
    )


def elect_longest_log(state: PartitionState, leader: BrokerId, min_isr: int) -> PartitionState:
    """Return the state after the unclean election of `leader`. Other members stay in the last known ELR.

    The caller ensures that the leader's log reaches at least as far as the log of each of these members. The
    leader may fail before `min_isr` replicas are in sync. It may then lose records that one of these members
    still has, for example in a power failure. So the next election waits for all of these members again.

    If the leader alone is enough (`effective_min_isr` is 1), they stay only while it is recovering. It takes
    over the log starts of these members, because they may have deleted records (DeleteRecords).
    """
    after = elect_uncleanly(state, leader)
    return with_isr(after._replace(last_known_elr=state.last_known_elr), after.isr, min_isr)


def elect_preferred(state: PartitionState, electable: frozenset[BrokerId]) -> PartitionState | None:
    """Return the state with the preferred leader as the leader, in a new leader epoch.

    Return None if the preferred leader leads already, is not in sync, or is not in `electable`.
    """
    preferred = state.replicas[0]
    if preferred == state.leader or preferred not in state.isr or preferred not in electable:
        return None
    return state._replace(leader=preferred, leader_epoch=state.leader_epoch + 1)


def leave_isr(
    state: PartitionState, replica: BrokerId, min_isr: int, electable: frozenset[BrokerId]
) -> PartitionState | None:
    """Return the state without a replica that requests to leave the ISR.

    The replica cannot write any more. It keeps its records, so it may join the ELR. If it leads, another
    in-sync replica in `electable` becomes the leader. `min_isr` is the topic's ``min.insync.replicas``.

    Return None if the replica must stay: it is the last member of the ISR, or it leads and no other member
    can be elected.
    """
    stay = tuple(each for each in state.isr if each != replica)
    after = with_isr(state, stay, min_isr)
    if state.leader != replica:
        return after if stay else None
    leader = _first_of(state.replicas, stay, electable)
    if leader == NO_BROKER:
        return None
    return after._replace(leader=leader, leader_epoch=state.leader_epoch + 1)


def alter_isr(
    state: PartitionState, isr: tuple[BrokerId, ...], min_isr: int, *, is_recovering: bool = False
) -> PartitionState:
    """Return the state with the ISR that its leader proposes (KIP-497), in the order of the replicas.

    `min_isr` is the topic's ``min.insync.replicas``. `is_recovering` says whether the leader is still
    recovering after an unclean election (KIP-704).
    """
    ordered = tuple(replica for replica in state.replicas if replica in isr)
    return with_isr(state._replace(recovering=is_recovering), ordered, min_isr)
