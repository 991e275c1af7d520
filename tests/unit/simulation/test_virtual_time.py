"""Virtual time: hours pass at once and in order, and a deadlock is reported."""

import asyncio
import time

import pytest
from simulation.clocks import VirtualClock
from simulation.virtual_time import Deadlock, run_virtual


def test_timers_fire_in_order_without_waiting() -> None:
    async def scenario() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        seen: list[tuple[str, float]] = []
        loop.call_later(7200, lambda: seen.append(("late", loop.time())))
        loop.call_later(3600, lambda: seen.append(("early", loop.time())))
        await asyncio.sleep(10_000)
        return seen

    started = time.process_time()
    assert run_virtual(scenario()) == [("early", 3600.0), ("late", 7200.0)]
    assert time.process_time() - started < 60


def test_loop_clock_follows_virtual_time() -> None:
    async def scenario() -> int:
        clock = VirtualClock(asyncio.get_running_loop(), start_ms=1000)
        await asyncio.sleep(2.5)
        return clock.now_ms()

    assert run_virtual(scenario()) == 3500


def test_waiting_for_nothing_is_a_deadlock() -> None:
    async def scenario() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock):
        run_virtual(scenario())


def test_timers_of_one_time_fire_in_the_order_in_which_they_were_set():
    async def scenario() -> list[int]:
        loop = asyncio.get_running_loop()
        fired: list[int] = []
        for number in range(50):
            loop.call_at(1.0 if number % 3 else 2.0, fired.append, number)
        loop.call_at(1.0, fired.append, -1).cancel()
        await asyncio.sleep(3)
        return fired

    early = [number for number in range(50) if number % 3]
    late = [number for number in range(50) if not number % 3]
    assert run_virtual(scenario()) == [*early, *late]
