"""Timers that are moved far more often than they expire."""

from __future__ import annotations

import asyncio

from simulation.virtual_time import run_virtual

from barnabas.broker.coordinator.timers import Timers


def test_timer_fires_once_at_its_deadline():
    async def scenario():
        timers, fired = Timers(), []
        timers.set("a", 1500, lambda: fired.append(asyncio.get_running_loop().time()))
        await asyncio.sleep(10)
        assert (fired, "a" in timers) == ([1.5], False)

    run_virtual(scenario())


def test_timer_set_again_fires_at_the_later_deadline_only():
    async def scenario():
        loop, timers, fired = asyncio.get_running_loop(), Timers(), []
        for number in range(5):
            timers.set("a", 3000, lambda number=number: fired.append((number, loop.time())))
            await asyncio.sleep(2)
        await asyncio.sleep(10)
        assert fired == [(4, 11)]

    run_virtual(scenario())


def test_timer_set_to_an_earlier_deadline_fires_earlier():
    async def scenario():
        loop, timers, fired = asyncio.get_running_loop(), Timers(), []
        timers.set("a", 5000, lambda: fired.append("late"))
        timers.set("a", 1000, lambda: fired.append(loop.time()))
        await asyncio.sleep(10)
        assert fired == [1]

    run_virtual(scenario())


def test_cancelled_timers_never_fire():
    async def scenario():
        timers, fired = Timers(), []
        for key in "abc":
            timers.set(key, 1000, lambda key=key: fired.append(key))
        timers.cancel("a")
        timers.cancel("not set")
        await asyncio.sleep(2)
        assert sorted(fired) == ["b", "c"]

    run_virtual(scenario())


def test_no_timer_fires_or_is_set_once_they_are_closed():
    async def scenario():
        timers, fired = Timers(), []
        timers.set("a", 1000, lambda: fired.append("before"))
        timers.close()
        for key in "ab":
            timers.set(key, 1000, lambda: fired.append("after"))
        await asyncio.sleep(10)
        assert fired == [] and "b" not in timers

    run_virtual(scenario())


def test_timer_may_set_itself_again():
    async def scenario():
        loop, timers, fired = asyncio.get_running_loop(), Timers(), []

        def tick():
            fired.append(loop.time())
            if len(fired) < 3:
                timers.set("a", 0 if len(fired) == 1 else 2000, tick)

        timers.set("a", 1000, tick)
        await asyncio.sleep(10)
        assert fired == [1, 1, 3]

    run_virtual(scenario())
