"""Reassignments of a partition in any order, while replicas leave and return."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.controller.reassignment import (
    begin,
    cancel,
    finish,
    is_complete,
    is_moving,
    origin_of,
    target_of,
)
from barnabas.broker.metadata.image import PartitionState

BROKERS = range(1, 7)
targets = st.lists(st.sampled_from(BROKERS), min_size=1, max_size=4, unique=True).map(tuple)
brokers = st.frozensets(st.sampled_from(BROKERS))


@st.composite
def states(draw: st.DrawFn) -> PartitionState:
    """Generate a partition after up to three successive reassignments, with some replicas in sync."""
    replicas = draw(targets)
    state = PartitionState(replicas, isr=replicas[:1], leader=replicas[0])
    for target in draw(st.lists(targets, max_size=3)):
        state = begin(state, target)
        state = with_isr(state, draw(brokers), draw(brokers))
    return state


def with_isr(state: PartitionState, in_sync: frozenset[int], eligible: frozenset[int]) -> PartitionState:
    isr = tuple(replica for replica in state.replicas if replica in in_sync or replica == state.leader)
    elr = tuple(replica for replica in state.replicas if replica in eligible and replica not in isr)
    return state._replace(isr=isr, elr=elr)


def check(state: PartitionState) -> None:
    replicas = set(state.replicas)
    assert len(replicas) == len(state.replicas)
    assert {*state.isr, *state.elr, *state.last_known_elr, *state.adding, *state.removing} <= replicas
    assert not set(state.adding) & set(state.removing)
    assert state.leader in state.isr
    assert origin_of(state)
    assert target_of(state)


def check_epoch(before: PartitionState, after: PartitionState, *gone: int) -> None:
    """Check that a removed replica raises the leader epoch, and that no other change
    with the same leader does.
    """
    is_smaller = bool(gone) or not set(before.replicas) <= set(after.replicas)
    assert after.leader_epoch == before.leader_epoch + is_smaller


@given(states(), targets)
def test_beginning_takes_nothing_away_that_is_needed(state: PartitionState, target: tuple[int, ...]) -> None:
    begun = begin(state, target)
    check(begun)
    assert target_of(begun) == target
    assert begun.replicas[: len(target)] == target
    assert {*origin_of(state), *target} <= set(begun.replicas)
    check_epoch(state, begun)
    untouched = ("isr", "elr", "last_known_elr", "leader")
    assert [getattr(begun, name) for name in untouched] == [getattr(state, name) for name in untouched]
    assert begin(begun, target) == begun


@given(states(), st.integers(1, 3), brokers)
def test_what_is_complete_is_in_sync_and_led_by_a_replica_that_stays(
    state: PartitionState, min_isr: int, electable: frozenset[int]
) -> None:
    done = finish(state, min_isr, electable)
    if done is None:
        assert not is_complete(state, min_isr) or (
            state.leader in state.removing and not electable & set(state.isr) & set(target_of(state))
        )
        return
    check(done)
    assert not is_moving(done)
    assert done.replicas == target_of(state)
    assert set(state.adding) <= set(done.isr) <= set(state.isr)
    assert len(done.isr) >= min(min_isr, len(done.replicas))
    assert (done.elr, done.last_known_elr) == ((), ())
    check_epoch(state, done)
    assert done.leader == state.leader or done.leader_epoch > state.leader_epoch
    assert done.leader == state.leader or done.leader in electable


@given(states(), targets)
def test_with_all_replicas_in_sync_every_move_completes(
    state: PartitionState, target: tuple[int, ...]
) -> None:
    begun = begin(state, target)
    whole = with_isr(begun, frozenset(begun.replicas), frozenset())
    done = finish(whole, 3, BROKERS)
    assert (done or whole).replicas == target
    assert not is_moving(done or whole)


@given(targets, targets)
def test_a_cancelled_move_goes_back_to_where_it_began(
    origin: tuple[int, ...], target: tuple[int, ...]
) -> None:
    state = PartitionState(origin, isr=origin, leader=origin[0])
    cancelled = cancel(begin(state, target))
    assert not is_moving(cancelled)
    assert set(cancelled.replicas) == set(origin)
    check_epoch(state, cancelled._replace(replicas=origin), *set(target) - set(origin))
    assert cancelled._replace(replicas=origin, leader_epoch=0) == state


@given(targets, targets)
def test_a_cancelled_move_whose_additions_are_in_sync_goes_back_without_them(
    origin: tuple[int, ...], target: tuple[int, ...]
) -> None:
    begun = begin(PartitionState(origin, isr=origin, leader=origin[0]), target)
    cancelled = cancel(with_isr(begun, frozenset(begun.replicas), frozenset()))
    done = finish(cancelled, 1, BROKERS) or cancelled
    assert set(done.replicas) == set(origin)
    assert not is_moving(done)


def test_the_last_replica_in_sync_is_not_removed() -> None:
    state = begin(PartitionState((1, 2), isr=(1,), leader=1), (2,))
    assert finish(state, 1, BROKERS) is None


def test_a_replica_out_of_sync_that_stays_does_not_hold_the_move_up() -> None:
    state = begin(PartitionState((1, 2, 3), isr=(1, 2), leader=1), (4, 2, 3))
    assert finish(state, 2, BROKERS) is None
    done = finish(state._replace(isr=(1, 2, 4)), 2, BROKERS)
    assert done is not None
    assert (done.replicas, done.isr, done.leader, done.leader_epoch) == ((4, 2, 3), (2, 4), 4, 1)


def test_a_move_waits_until_enough_of_those_that_stay_are_in_sync() -> None:
    state = begin(PartitionState((1, 2, 3), isr=(1, 2, 3), leader=1), (3, 4))._replace(isr=(1, 4))
    assert finish(state, 2, BROKERS) is None
    assert finish(state, 1, BROKERS) is not None


def test_an_addition_that_is_replaced_before_it_is_in_sync_goes_at_once() -> None:
    state = begin(begin(PartitionState((1, 2), isr=(1, 2), leader=1), (3, 4)), (5, 2))
    assert (state.replicas, state.adding, state.removing) == ((5, 2, 1), (5,), (1,))


def test_a_partition_whose_leader_goes_waits_for_one_that_can_be_elected() -> None:
    state = begin(PartitionState((1,), isr=(1,), leader=1), (2,))._replace(isr=(1, 2))
    assert finish(state, 1, {1, 3}) is None
    assert finish(state, 1, {2}) == PartitionState((2,), isr=(2,), leader=2, leader_epoch=1)
