"""Delayed operations, in virtual time."""

import asyncio

import pytest
from simulation.virtual_time import run_virtual

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.replication.purgatory import DelayedOperation


class Watched:
    def __init__(self):
        self.watchers = {}

    def progress(self):
        for watcher in self.watchers:
            watcher.progressed(0)


def test_an_operation_ends_when_progress_is_enough_and_leaves_nothing_behind():
    async def main():
        watched, other = Watched(), Watched()
        done = 0

        def attempt(expired):
            return "enough" if done >= 2 else None

        operation = DelayedOperation([watched, other], 60_000, attempt)
        for done in (1, 2):  # noqa: B007
            watched.progress()
            await asyncio.sleep(0)
        assert await operation.future == "enough"
        assert asyncio.get_running_loop().time() == 0
        await asyncio.sleep(0)
        assert watched.watchers == other.watchers == {}

    run_virtual(main())


def test_an_operation_ends_when_its_time_is_up():
    async def main():
        operation = DelayedOperation([Watched()], 500, lambda expired: "late" if expired else None)
        assert await operation.future == "late"
        assert asyncio.get_running_loop().time() == pytest.approx(0.5)

    run_virtual(main())


def test_many_appends_in_one_turn_are_one_attempt():
    async def main():
        watched = Watched()
        attempts = []
        DelayedOperation([watched], 500, lambda expired: attempts.append(expired))
        for _ in range(10):
            watched.progress()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert attempts == [False]

    run_virtual(main())


def test_a_client_that_goes_takes_its_operation_with_it():
    async def main():
        watched = Watched()
        operation = DelayedOperation([watched], 500, lambda expired: None)
        operation.future.cancel()
        await asyncio.sleep(0)
        assert watched.watchers == {}
        await asyncio.sleep(1)

    run_virtual(main())


def test_an_error_ends_the_wait():
    async def main():
        watched = Watched()

        def attempt(expired):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

        operation = DelayedOperation([watched], 500, attempt)
        watched.progress()
        with pytest.raises(KafkaError):
            await operation.future

    run_virtual(main())


def test_an_operation_that_is_expired_ends_at_once():
    async def main():
        operation = DelayedOperation([Watched()], 60_000, lambda expired: "late" if expired else None)
        operation.expire()
        assert await operation.future == "late"
        assert asyncio.get_running_loop().time() == 0

    run_virtual(main())
