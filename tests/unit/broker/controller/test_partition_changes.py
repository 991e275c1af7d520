"""The state of a partition when its replicas leave, return, stop uncleanly or catch up (KIP-966)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.base.types import NO_BROKER
from barnabas.broker.controller.partition_changes import (
    Eligibility,
    alter_isr,
    candidates,
    effective_min_isr,
    elect_longest_log,
    elect_preferred,
    elect_uncleanly,
    settle,
    with_isr,
)
from barnabas.broker.metadata.image import PartitionState

REPLICAS = (1, 2, 3)
ALL = frozenset(REPLICAS)


def state(
    isr: tuple[int, ...] = REPLICAS, leader: int = 1, elr: tuple[int, ...] = (), last: tuple[int, ...] = ()
) -> PartitionState:
    return PartitionState(REPLICAS, isr, leader, 5, 9, elr, last)


def alive(*brokers: int, leaving: tuple[int, ...] = (), unclean: tuple[int, ...] = ()) -> Eligibility:
    running = frozenset(brokers)
    return Eligibility(running - set(unclean), running, frozenset(leaving), frozenset(unclean))


def restarted(broker: int, *others: int, clean: bool = True) -> Eligibility:
    running = frozenset((broker, *others))
    return Eligibility(running - {broker}, running, unclean=frozenset() if clean else frozenset((broker,)))


def of(after: PartitionState) -> tuple[int, int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    return after.leader, after.leader_epoch, after.isr, after.elr, after.last_known_elr


SETTLED = [
    ("all well: nothing", state(), alive(1, 2, 3), (1, 5, (1, 2, 3), (), ())),
    ("leader goes: the next in sync", state(), alive(2, 3), (2, 6, (2, 3), (), ())),
    ("follower goes: same leader epoch", state(), alive(1, 3), (1, 5, (1, 3), (), ())),
    ("out of sync is not elected", state(isr=(1, 3)), alive(2, 3), (3, 6, (3,), (1,), ())),
    ("order of replicas decides, not of ISR", state(isr=(3, 2, 1)), alive(2, 3), (2, 6, (3, 2), (), ())),
    ("two go: below the minimum one joins the ELR", state((1, 2)), alive(2), (2, 6, (2,), (1,), ())),
    ("the last goes into the ELR", state((2,), 2, (1,)), alive(3), (-1, 6, (), (1, 2), ())),
    ("still nobody: nothing", state((), -1, (1, 2)), alive(3), (-1, 5, (), (1, 2), ())),
    ("leader from the ELR", state((), -1, (1, 2)), alive(2, 3), (2, 6, (2,), (1,), ())),
    ("clean restart of the only one", state((1,)), restarted(1), (1, 6, (1,), (), ())),
    ("clean restart of a follower", state(), restarted(3, 1, 2), (1, 5, (1, 2), (), ())),
    (
        "unclean restart of the last",
        state((), -1, (2,)),
        restarted(2, clean=False),
        (-1, 5, (), (), (2,)),
    ),
    (
        "unclean restart of one of two candidates",
        state((), -1, (1, 2)),
        restarted(1, 3, clean=False),
        (-1, 5, (), (2,), (1,)),
    ),
    ("shutting down: leadership moves", state(), alive(2, 3, leaving=(1,)), (2, 6, (2, 3), (), ())),
    ("shutting down, a follower: out", state(), alive(1, 3, leaving=(2,)), (1, 5, (1, 3), (), ())),
    ("shutting down, nobody else: it stays", state((1,)), alive(3, leaving=(1,)), (1, 5, (1,), (), ())),
    (
        "all shut down: nothing",
        state(),
        alive(leaving=(1, 2, 3)),
        (1, 5, (1, 2, 3), (), ()),
    ),
    (
        "enough in sync again: no ELR",
        state((1, 2), 1, (3,), ()),
        alive(1, 2, 3),
        (1, 5, (1, 2), (), ()),
    ),
]


@pytest.mark.parametrize(("name", "before", "eligible", "expected"), SETTLED, ids=[s[0] for s in SETTLED])
def test_settled_state_of_three_replicas_of_which_two_must_be_in_sync(
    name: str, before: PartitionState, eligible: Eligibility, expected: object
) -> None:
    if name == "clean restart of the only one":
        one = before._replace(replicas=(1,))
        assert of(settle(one, 2, eligible)) == expected
    else:
        assert of(settle(before, 2, eligible)) == expected


def test_nothing_to_do_gives_the_very_same_state() -> None:
    before = state()
    assert settle(before, 2, alive(1, 2, 3)) is before


def test_candidates_are_waited_for_until_all_of_the_last_known_run() -> None:
    lost = state((), -1, (), (2, 3))
    assert candidates(lost, frozenset((1, 2))) == ()
    assert candidates(lost, frozenset((2, 3))) == (2, 3)
    assert candidates(lost, ALL) == (2, 3, 1)
    assert candidates(lost, frozenset((1, 2)), is_unclean_allowed=True) == (2, 1)


def test_no_candidate_while_somebody_has_everything_unless_loss_is_allowed() -> None:
    waiting = state((), -1, (3,), (2,))
    assert candidates(waiting, frozenset((1, 2))) == ()
    assert candidates(waiting, frozenset((1, 2)), is_unclean_allowed=True) == (2, 1)
    assert candidates(state(), ALL, is_unclean_allowed=True) == ()


def test_unclean_leader_is_alone_in_sync_and_recovers() -> None:
    after = elect_uncleanly(state((), -1, (3,), (2,)), 1)
    assert of(after) == (1, 6, (1,), (), ())
    assert after.recovering
    assert not elect_uncleanly(PartitionState((1,), (), -1), 1).recovering


def test_those_who_were_last_in_sync_are_waited_for_while_the_furthest_leads_alone() -> None:
    leading = elect_longest_log(state((), -1, (), (2, 3)), 1, 2)
    assert of(leading) == (1, 6, (1,), (), (2, 3))
    assert leading.recovering
    lost_power = settle(
        leading, 2, Eligibility(frozenset((2, 3)), frozenset((2, 3)), unclean=frozenset((1,)))
    )
    assert of(lost_power) == (-1, 7, (), (), (1, 2, 3))
    assert candidates(lost_power, frozenset((1,))) == ()
    assert candidates(lost_power, ALL) == (1, 2, 3)
    assert of(alter_isr(leading, (1, 2), 2)) == (1, 6, (1, 2), (), ())


def test_leader_that_is_enough_alone_learns_who_was_last_in_sync_until_it_no_longer_recovers() -> None:
    """It must take over their deletions (DeleteRecords), as in simulation seed 400335."""
    leading = elect_longest_log(state((), -1, (), (1, 3)), 1, 1)
    assert of(leading) == (1, 6, (1,), (), (3,))
    assert settle(leading, 1, alive(*REPLICAS)) is leading
    assert of(alter_isr(leading, (1,), 1)) == (1, 6, (1,), (), ())
    assert with_isr(leading._replace(replicas=(1, 2)), (1,), 1).last_known_elr == ()  # 3 was removed
    gone = settle(leading, 1, alive(3, unclean=(1,)))
    assert of(gone) == (-1, 7, (), (), (1, 3))


def test_preferred_leader_leads_again_only_when_in_sync_and_running() -> None:
    moved = state(leader=2)
    back = elect_preferred(moved, ALL)
    assert back is not None
    assert of(back) == (1, 6, (1, 2, 3), (), ())
    assert elect_preferred(state(), ALL) is None
    assert elect_preferred(state((2, 3), leader=2), ALL) is None
    assert elect_preferred(moved, frozenset((2, 3))) is None


def test_proposal_of_the_leader_fills_and_empties_the_elr() -> None:
    shrunk = alter_isr(state((1, 2)), (1,), 2)
    assert of(shrunk) == (1, 5, (1,), (2,), ())
    grown = alter_isr(shrunk, (3, 1), 2)
    assert of(grown) == (1, 5, (1, 3), (), ())


# --- properties ---

brokers = st.frozensets(st.integers(1, 5), max_size=5)


@st.composite
def states(draw: st.DrawFn) -> tuple[PartitionState, int]:
    """Generate any valid state of a partition, and the minimum ISR."""
    replicas = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=5, unique=True)))
    min_isr = draw(st.integers(1, 3))
    isr = tuple(r for r in replicas if draw(st.booleans()))
    before = PartitionState(replicas, isr, NO_BROKER, 5)
    if len(isr) < effective_min_isr(before, min_isr):
        rest = [r for r in replicas if r not in isr]
        elr = tuple(r for r in rest if draw(st.booleans()))
        last = tuple(r for r in rest if r not in elr and draw(st.booleans()))
        before = before._replace(elr=elr, last_known_elr=last)
    leaders = [NO_BROKER, *isr]
    return before._replace(leader=draw(st.sampled_from(leaders))), min_isr


@st.composite
def eligibilities(draw: st.DrawFn) -> Eligibility:
    electable = draw(brokers)
    bounced = draw(brokers)
    unclean = frozenset(broker for broker in bounced if draw(st.booleans()))
    leaving = draw(brokers) - electable
    return Eligibility(electable - bounced, electable, leaving - bounced, unclean)


def assert_sound(after: PartitionState, min_isr: int) -> None:
    replicas = set(after.replicas)
    groups = [set(after.isr), set(after.elr), set(after.last_known_elr)]
    assert all(group <= replicas for group in groups)
    assert sum(map(len, groups)) == len(set().union(*groups)), "ISR, ELR and last known ELR are disjoint"
    if len(after.isr) >= effective_min_isr(after, min_isr):
        assert not after.elr
    assert after.leader == NO_BROKER or after.leader in after.isr


@given(states(), eligibilities())
def test_settling_is_sound_and_done_at_once(case: tuple[PartitionState, int], eligible: Eligibility) -> None:
    before, min_isr = case
    after = settle(before, min_isr, eligible)
    assert_sound(after, min_isr)
    assert after.replicas == before.replicas
    assert after.partition_epoch == before.partition_epoch
    # Only who was sure to have everything, and still is, leads.
    if after.leader != NO_BROKER:
        assert after.leader in {*before.isr, *before.elr} - eligible.unclean
        assert after.leader in eligible.electable | eligible.leaving
    # A leader that stays, stays in its epoch; every other one begins a new one.
    stays = after.leader == before.leader and (
        before.leader == NO_BROKER or before.leader in eligible.in_sync | eligible.leaving
    )
    assert after.leader_epoch == before.leader_epoch + (0 if stays else 1)
    # Nobody joins the ISR but who leads; nobody who has everything is forgotten below the minimum.
    assert set(after.isr) <= {*before.isr, after.leader}
    assert eligible.unclean.isdisjoint(after.elr)
    if len(after.isr) < effective_min_isr(after, min_isr):
        known = {*before.isr, *before.elr, *before.last_known_elr}
        assert known == {*after.isr, *after.elr, *after.last_known_elr}
    # Once the restarts are dealt with, the state stands: the controller need not look at it again.
    leaving = frozenset(range(1, 6)) - eligible.electable
    for admitted in (eligible.leaving, leaving):
        assert settle(after, min_isr, Eligibility(eligible.electable, eligible.electable, admitted)) is after
    # A partition is without a leader only if nobody who has everything can lead.
    if after.leader == NO_BROKER:
        assert eligible.electable.isdisjoint({*after.isr, *after.elr})


@given(states(), st.data())
def test_proposals_are_sound(case: tuple[PartitionState, int], data: st.DataObject) -> None:
    before, min_isr = case
    if before.leader == NO_BROKER:
        return
    others = data.draw(st.frozensets(st.sampled_from(before.replicas)))
    after = alter_isr(before, tuple(others | {before.leader}), min_isr)
    assert_sound(after, min_isr)
    assert set(after.isr) == others | {before.leader}
    assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)


class Committed(RuleBasedStateMachine):
    """A model of replicas that append, commit, die, lose unsynced records, and return.

    Every candidate for an election has all committed records, as long as the elections are clean. The log of
    a replica is only its length. A record is committed when all in-sync replicas have it and they are enough.
    """

    MIN_ISR = 2

    def __init__(self) -> None:
        super().__init__()
        self.state = PartitionState(REPLICAS, REPLICAS, 1)
        self.ends = dict.fromkeys(REPLICAS, 0)
        self.flushed = dict.fromkeys(REPLICAS, 0)
        self.running = set(REPLICAS)
        self.committed = 0

    def settle(self, bounced: int | None = None, *, clean: bool = True) -> None:
        running = frozenset(self.running)
        unclean = frozenset() if clean or bounced is None else frozenset((bounced,))
        eligible = Eligibility(running - {bounced} if bounced else running, running, unclean=unclean)
        leader = self.state.leader_epoch
        self.state = settle(self.state, self.MIN_ISR, eligible)
        if self.state.leader_epoch != leader and self.state.leader != NO_BROKER:
            for replica in self.running:  # they truncate to the new leader's log
                self.ends[replica] = min(self.ends[replica], self.ends[self.state.leader])

    def commit(self) -> None:
        if self.state.leader != NO_BROKER and len(self.state.isr) >= self.MIN_ISR:
            self.committed = max(self.committed, min(self.ends[r] for r in self.state.isr))

    @precondition(lambda self: self.state.leader != NO_BROKER)
    @rule()
    def append(self) -> None:
        self.ends[self.state.leader] += 1

    @precondition(lambda self: self.state.leader != NO_BROKER)
    @rule(replica=st.sampled_from(REPLICAS))
    def fetch(self, replica: int) -> None:
        if replica in self.running:
            self.ends[replica] = self.ends[self.state.leader]
            self.commit()

    @rule(replica=st.sampled_from(REPLICAS))
    def flush(self, replica: int) -> None:
        if replica in self.running:
            self.flushed[replica] = self.ends[replica]

    @precondition(lambda self: self.state.leader != NO_BROKER)
    @rule(replica=st.sampled_from(REPLICAS))
    def join(self, replica: int) -> None:
        if replica in self.running and self.ends[replica] >= self.committed:
            self.state = alter_isr(self.state, (*self.state.isr, replica), self.MIN_ISR)

    @precondition(lambda self: self.state.leader != NO_BROKER)
    @rule(replica=st.sampled_from(REPLICAS))
    def lag(self, replica: int) -> None:
        if replica != self.state.leader:
            self.state = alter_isr(self.state, tuple(r for r in self.state.isr if r != replica), self.MIN_ISR)
            self.commit()

    @rule(replica=st.sampled_from(REPLICAS))
    def die(self, replica: int) -> None:
        if replica in self.running:
            self.running.remove(replica)
            self.settle()
            self.commit()

    @rule(replica=st.sampled_from(REPLICAS), clean=st.booleans())
    def come_back(self, replica: int, clean: bool) -> None:
        if replica not in self.running:
            if not clean:
                self.ends[replica] = min(self.ends[replica], self.flushed[replica])
            self.flushed[replica] = self.ends[replica]
            self.running.add(replica)
            self.settle(replica, clean=clean)

    @rule(replica=st.sampled_from(REPLICAS), clean=st.booleans())
    def bounce(self, replica: int, clean: bool) -> None:
        if replica in self.running:
            if not clean:
                self.ends[replica] = min(self.ends[replica], self.flushed[replica])
            self.settle(replica, clean=clean)
            self.commit()

    @invariant()
    def candidates_have_everything(self) -> None:
        assert_sound(self.state, self.MIN_ISR)
        for replica in (*self.state.isr, *self.state.elr):
            assert self.ends[replica] >= self.committed


TestCommitted = Committed.TestCase
