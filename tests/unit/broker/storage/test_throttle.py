"""The rate of background work does not depend on the wall clock."""

from __future__ import annotations

import pytest
from simulation.clocks import ManualClock

from barnabas.broker.storage import Throttle


def test_work_waits_behind_what_was_booked_before_it():
    clock = ManualClock()
    throttle = Throttle(clock, lambda: 100.0)
    assert throttle.delay(50) == pytest.approx(0.5)
    assert throttle.delay(100) == pytest.approx(1.5)
    clock.advance(1000)
    assert throttle.delay(100) == pytest.approx(1.5)
    clock.advance(60_000)
    assert throttle.delay(100) == pytest.approx(1.0)


@pytest.mark.parametrize("ahead_ms", [30 * 60_000, -30 * 60_000])
def test_a_clock_that_was_set_wrong_for_a_while_holds_nothing_up(ahead_ms):
    clock = ManualClock()
    throttle = Throttle(clock, lambda: 100.0)
    clock.ahead_ms = ahead_ms
    assert throttle.delay(1) == pytest.approx(0.01)
    clock.ahead_ms = 0
    assert throttle.delay(1) == pytest.approx(0.02)
