"""A leader does not count the time in which it was paused itself as its followers' lag."""

from __future__ import annotations

import asyncio

import pytest
from simulation.virtual_time import run_virtual
from tests.views import view_of

from barnabas.broker.config import BrokerConfig
from barnabas.broker.replication.serving_time import ServingTime


def serving_time(lag_ms=30_000):
    """Return a serving time that is checked each half of this time."""
    return ServingTime(view_of(config=BrokerConfig(node_id=1, replica_lag_time_max_ms=lag_ms)))


def stall(seconds):
    """Let time pass while the loop does nothing."""
    asyncio.get_running_loop()._now += seconds


def test_time_goes_on_as_long_as_the_loop_turns():
    async def main():
        time = serving_time()
        time.start(lambda: None)
        await asyncio.sleep(42)
        assert time.now() == pytest.approx(42)
        time.stop()

    run_virtual(main())


def test_a_stall_does_not_count():
    async def main():
        time = serving_time()
        time.start(lambda: None)
        await asyncio.sleep(10)
        stall(60)
        await asyncio.sleep(10)
        assert time.now() == pytest.approx(20, abs=1)
        time.stop()

    run_virtual(main())


def test_the_check_comes_at_intervals_of_this_time():
    async def main():
        checked = []
        time = serving_time()
        time.start(lambda: checked.append(time.now()))
        await asyncio.sleep(20)
        assert checked == [pytest.approx(15)]
        stall(60)
        await asyncio.sleep(2)
        assert len(checked) == 1
        await asyncio.sleep(10)
        assert len(checked) == 2
        time.stop()

    run_virtual(main())


def test_a_check_that_fails_does_not_end_the_checks():
    async def main():
        checked, reported = [], []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

        def check():
            checked.append(time.now())
            if len(checked) == 1:
                raise RuntimeError("planted")

        time = serving_time()
        time.start(check)
        await asyncio.sleep(40)
        assert len(checked) == 2
        assert [str(context["exception"]) for context in reported] == ["planted"]
        time.stop()

    run_virtual(main())


def test_the_check_follows_a_shorter_interval():
    async def main():
        checked = []
        time = serving_time(100)
        time.start(lambda: checked.append(time.now()))
        await asyncio.sleep(1.01)
        assert len(checked) in range(15, 21)
        time.stop()

    run_virtual(main())


def test_nothing_is_checked_after_the_stop():
    async def main():
        checked = []
        time = serving_time()
        time.start(lambda: checked.append(time.now()))
        await asyncio.sleep(1)
        time.stop()
        await asyncio.sleep(60)
        assert checked == []

    run_virtual(main())
