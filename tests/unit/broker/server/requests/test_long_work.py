"""Long lists: short ones at once, long ones in slices, between which the loop serves other requests."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from barnabas.base.environment.environment import Environment
from barnabas.broker.awaitables import LongResponse
from barnabas.broker.config import TopicConfig
from barnabas.broker.server.requests import long_work
from barnabas.broker.server.requests.long_work import LISTED_AT_ONCE, LongWork


@pytest.fixture
def work():
    work = LongWork(Environment.of_system())
    yield work
    work.stop()


def odd(number):
    return number if number % 2 else None


def test_a_few_things_are_listed_at_once(work):
    assert work.listed(range(LISTED_AT_ONCE), odd, sum) == sum(range(1, LISTED_AT_ONCE, 2))


def test_many_things_are_listed_in_slices_though_most_are_left_out(work):
    async def scenario():
        turns = 0

        def describe(number):
            assert turns or number < 200  # others have been served since the start
            end = time.perf_counter() + 0.0001
            while time.perf_counter() < end:
                pass
            return number if number in (1, 998) else None

        async def others():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        answer = work.listed(range(2 * LISTED_AT_ONCE), describe, list)
        assert isinstance(answer, LongResponse)
        listing = asyncio.ensure_future(answer)
        await asyncio.sleep(0)
        serving = asyncio.ensure_future(others())
        assert await listing == [1, 998]
        serving.cancel()
        assert turns > 10

    asyncio.run(scenario())


def test_compressions_do_not_delay_other_work(work, monkeypatch):
    """With gzip at level 9, eight producers delayed a request with 1,500 elements by 4 s."""
    ended = threading.Event()
    monkeypatch.setattr(long_work, "validate_batch", lambda *_, **__: ended.wait(10))

    async def scenario():
        compressing = asyncio.ensure_future(work.validate(b"", TopicConfig(compression_type="gzip"), 0))
        await asyncio.sleep(0)
        assert await work.run(odd, 1) == 1
        assert not compressing.done()
        ended.set()
        assert await compressing
        assert await work.validate(b"", TopicConfig(), 0)

    asyncio.run(scenario())


def test_work_of_a_request_that_outlives_the_broker_is_cancelled(work):
    async def answer():
        work.stop()
        await work.run(len, [])

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(answer())


def test_work_runs_until_the_broker_has_stopped():
    async def scenario():
        work = LongWork(Environment.of_system())
        assert await work.run(sum, [1, 2]) == 3
        work.stop()
        with pytest.raises(asyncio.CancelledError):
            await work.run(sum, [1, 2])

    asyncio.run(scenario())
