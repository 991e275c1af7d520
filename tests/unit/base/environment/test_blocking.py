"""Both kinds of pools give the same guarantees. The virtual pool does the same in every run of a seed."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest
from simulation.blocking import VirtualThreads
from simulation.virtual_time import run_virtual

from barnabas.base.environment.blocking import Blocking, Threads

Scenario = Callable[[Blocking], Coroutine[Any, Any, Any]]


def in_threads(scenario: Scenario) -> Any:
    return asyncio.run(scenario(Threads()))


def in_virtual_time(scenario: Scenario, seed: int = 1) -> Any:
    return run_virtual(scenario(VirtualThreads(Random(seed))))


both = pytest.mark.parametrize("play", [in_threads, in_virtual_time])


@both
def test_a_call_gives_what_the_function_returns_or_raises(play: Callable[[Scenario], Any]) -> None:
    async def scenario(blocking: Blocking) -> None:
        pool = blocking.pool("test", 1)
        assert await pool.run(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await pool.run(divmod, 7, 0)
        await pool.close()

    play(scenario)


@both
def test_one_thread_makes_the_calls_in_their_order(play: Callable[[Scenario], Any]) -> None:
    async def scenario(blocking: Blocking) -> None:
        pool = blocking.pool("test", 1)
        made: list[int] = []
        await asyncio.gather(*(pool.run(made.append, number) for number in range(50)))
        assert made == list(range(50))
        await pool.close()

    play(scenario)


@both
def test_close_waits_for_what_was_given(play: Callable[[Scenario], Any]) -> None:
    async def scenario(blocking: Blocking) -> None:
        pool = blocking.pool("test", 2)
        made: list[int] = []
        for number in range(10):
            pool.run(made.append, number)
        await pool.close()
        assert sorted(made) == list(range(10))
        with pytest.raises(RuntimeError):
            pool.run(made.append, 10)

    play(scenario)


@both
def test_an_abandoned_pool_begins_nothing_more(play: Callable[[Scenario], Any]) -> None:
    async def scenario(blocking: Blocking) -> None:
        pool = blocking.pool("test", 1)
        begun, let_go = threading.Event(), threading.Event()
        is_real = isinstance(blocking, Threads)
        first = pool.run(lambda: (begun.set(), is_real and let_go.wait(60)))
        second = pool.run(pytest.fail)
        while not begun.is_set():
            await asyncio.sleep(0.0001)
        pool.abandon()
        let_go.set()
        await first
        with pytest.raises(asyncio.CancelledError):
            await second

    play(scenario)


@both
def test_a_cancelled_call_that_has_not_begun_is_not_made(play: Callable[[Scenario], Any]) -> None:
    async def scenario(blocking: Blocking) -> None:
        pool = blocking.pool("test", 1)
        let_go = threading.Event()
        first = pool.run(let_go.wait, 60 if isinstance(blocking, Threads) else 0)
        second = pool.run(pytest.fail)
        second.cancel()
        let_go.set()
        await first
        await pool.close()

    play(scenario)


@both
def test_for_each_has_called_all_when_it_returns(play: Callable[[Scenario], Any]) -> None:
    async def scenario(blocking: Blocking) -> None:
        seen: list[int] = []
        with blocking.side_by_side(4) as for_each:
            for_each(seen.append, range(20))
            assert sorted(seen) == list(range(20))
            with pytest.raises(ZeroDivisionError):
                for_each(lambda number: 1 // number, [1, 0, 2])

    play(scenario)


@both
def test_a_signal_ends_a_wait(play: Callable[[Scenario], Any]) -> None:
    async def scenario(blocking: Blocking) -> None:
        pool = blocking.pool("test", 1)
        signal = blocking.signal()
        assert not await pool.run(signal.wait, 0.001)
        signal.set()
        assert await pool.run(signal.wait, 3600)
        await pool.close()

    play(scenario)


def test_a_wait_takes_virtual_time() -> None:
    async def scenario(blocking: Blocking) -> float:
        pool = blocking.pool("test", 1)
        signal = blocking.signal()
        await pool.run(lambda: [signal.wait(1800), signal.wait(1800)])
        return asyncio.get_running_loop().time()

    assert 3600 < in_virtual_time(scenario) < 3601


def test_no_more_calls_run_at_a_time_than_there_are_threads() -> None:
    async def scenario(blocking: Blocking) -> float:
        pool = blocking.pool("test", 2)
        signal = blocking.signal()
        await asyncio.gather(*(pool.run(signal.wait, 100) for _ in range(6)))
        return asyncio.get_running_loop().time()

    assert 300 < in_virtual_time(scenario) < 301


def test_a_seed_decides_the_order_of_calls() -> None:
    async def scenario(blocking: Blocking) -> list[int]:
        pool = blocking.pool("test", 8)
        made: list[int] = []
        await asyncio.gather(*(pool.run(made.append, number) for number in range(8)))
        return made

    orders = [in_virtual_time(scenario, seed) for seed in (1, 1, 2, 3)]
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in orders}) == 3
