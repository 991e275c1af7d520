"""Elections after crashes lose no committed record that a replica still has which was last in sync."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples
from tests.property.elections_model import Elections, LossError

from barnabas.broker.controller import replica_logs


@settings(max_examples=examples(300, 20_000), deadline=None)
@given(st.binary(min_size=150, max_size=350))
def test_elections_keep_what_a_replica_still_has_that_was_last_in_sync(program):
    Elections(program).run()


def after_the_crash_of_all() -> Elections:
    """Return the history of simulation seeds 600112 and 1300011, up to the election.

    Broker 2 led in epoch 2, and nothing of it was committed. Brokers 1 and 3 then committed records of epoch
    1. All brokers crash, and return with all of their records.
    """
    model = Elections(bytes([0, 1]))  # three replicas, of which two must be in sync
    first, second, third = model.brokers.values()
    for _ in range(2):
        model.append()
    model.follow(third, 10)
    model.end_session(first)
    model.receive(second)
    model.register(first)
    for _ in range(3):
        model.append()
    model.kill(second)
    model.register(second)
    model.all_receive()
    model.follow(first, 10)
    model.expand()
    model.follow(first, 10)
    model.cut_power()
    model.start_all()
    assert len(model.committed) == 2
    assert set(model.state.last_known_elr) == {1, 3}
    return model


def test_a_former_leader_does_not_lead_with_records_that_were_never_committed():
    model = after_the_crash_of_all()
    model.elect()
    assert model.state.leader in (1, 3)
    assert len(model.committed) == 2


def test_a_leader_that_has_lost_deleted_records_does_not_use_their_offsets_again():
    """A follower that begins at the leader's start would lack the records at these offsets."""
    model = Elections(bytes([0, 0]))  # three replicas, of which one must be in sync
    leader, _, third = model.brokers.values()
    model.append()
    leader.log.flush()
    for _ in range(3):
        model.append()
    for _ in range(2):
        model.shrink()
    assert model.state.isr == (leader.id,)
    model.delete_records()
    assert leader.log.stored_start == 4
    model.follow(third, 10)
    assert third.log.log_start_offset == 4
    model.end_session(leader)
    leader.is_alive = leader.is_clean = False
    model.dirty.add(leader.id)
    leader.log.crash(leader.log.flushed)
    model.start_all()
    model.elect()
    model.all_receive()
    assert model.state.leader == leader.id
    for _ in range(4):
        model.append()
    model.fetch_all()
    model.expand()
    assert third.id in model.state.isr
    start = leader.log.log_start_offset
    assert leader.log.records[start - leader.log.base :] == third.log.records[start - third.log.base :]


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("contains", lambda starts, end, other: True),
        ("choose_leader", lambda state, logs: max(logs, key=lambda each: logs[each].end.end)),
        (
            "choose_leader",
            lambda state, logs: replica_logs.longest_log({n: each.end for n, each in logs.items()}),
        ),
    ],
    ids=["what is not known counts as yes", "by offset alone", "the longest of all"],
)
def test_the_model_catches_a_wrong_rule(monkeypatch, name, rule):
    monkeypatch.setattr(replica_logs, name, rule)
    model = after_the_crash_of_all()
    with pytest.raises(LossError):
        model.elect()
