"""Records a second, now and in the last half hour."""

from __future__ import annotations

from itertools import pairwise

import pytest

from barnabas.base.types import TopicPartition
from barnabas.console import rates
from barnabas.console.rates import Rates

PLACE = TopicPartition("orders", 0)


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(rates.time, "monotonic", lambda: now[0])
    return now


def test_the_history_has_a_sample_every_few_seconds_for_half_an_hour(clock):
    known = Rates()
    for n in range(3000):
        clock[0] = 1000.0 + n
        known.note({PLACE: n * 10})
        samples = known.history("orders", int(clock[0] * 1000))
    assert samples[-1][1] == 10.0 and len(samples) <= 360
    assert {b - a for (a, _), (b, _) in pairwise(samples)} == {5000}
    assert samples[-1][0] - samples[0][0] <= 1_800_000
    assert [rate for _, rate in known.history("", int(clock[0] * 1000))] == [10.0]


@pytest.mark.parametrize("jump_ms", [-86_400_000, 86_400_000])
def test_the_history_goes_on_after_the_clock_is_set(clock, jump_ms):
    known = Rates()
    for n in range(60):
        clock[0] = 1000.0 + n
        known.note({PLACE: n * 10})
        before = known.history("orders", int(clock[0] * 1000))
    for n in range(60, 120):
        clock[0] = 1000.0 + n
        known.note({PLACE: n * 10})
        after = known.history("orders", int(clock[0] * 1000) + jump_ms)
    assert len(after) == len(before) + 12
    assert {b - a for (a, _), (b, _) in pairwise(after)} == {5000}, "one line, in the present time"


def test_the_history_is_of_topics_that_are_looked_at_and_of_few(clock):
    known = Rates()
    for n in range(1000):
        known.history(f"t{n}", 0)
    assert len(known._samples) == 100
