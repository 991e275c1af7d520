"""Runs work that would block the event loop for too long, in a thread or in slices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sized
from typing import ParamSpec, TypeVar

from barnabas.base.environment.environment import Environment
from barnabas.broker.awaitables import LongResponse, MaybeAwaitable

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
D = TypeVar("D")

#: how long one slice may last, in seconds; a step of the work begun within it is finished
SLICE = 0.002
#: largest number of items that a listing describes in one turn: a few milliseconds
LISTED_AT_ONCE = 500


class LongWork:
    """Runs the long work of one broker, in one thread or in slices on the event loop.

    There is only one thread, because threads and the event loop share the GIL. A function in the thread must
    not use the broker's state, only data that belongs to it alone.
    """

    def __init__(self, environment: Environment) -> None:
        self._thread = environment.blocking.pool("long work", 1)
        #: seconds since some moment
        self.now = environment.clock.monotonic
        self._turn = asyncio.Lock()
        self._is_stopped = False

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `function` in the thread. Return its result, or raise its exception.

        Raises:
            asyncio.CancelledError: the broker has stopped, so no client waits for the result.
        """
        if self._is_stopped:
            raise asyncio.CancelledError
        return await self._thread.run(function, *args, **kwargs)

    async def slices(self, items: Iterable[T]) -> AsyncIterator[T]:
        """Yield the items one after another. After each slice of time, let the event loop serve requests.

        In a turn of the event loop, only one caller of this method gets a slice.
        """
        end = self.now() + SLICE
        for item in items:
            yield item
            if self.now() >= end:
                end = await self.next_slice()

    async def finish(self, steps: Iterable[object]) -> None:
        """Exhaust the iterable `steps` in slices. The first step is in a later turn of the event loop.

        A step is the work that the iterable does to yield one item. The items are ignored.
        """
        await self.next_slice()
        async for _ in self.slices(steps):
            pass

    async def next_slice(self) -> float:
        """Let the event loop serve requests, and wait for the next slice.

        Return the time at which this slice ends, in seconds of the clock `now`.
        """
        async with self._turn:
            await asyncio.sleep(0)
        return self.now() + SLICE

    def is_long(self, items: Sized) -> bool:
        """Whether `listed` describes `items` in slices and returns an awaitable, because they are many."""
        return len(items) > LISTED_AT_ONCE

    def listed(
        self, items: Collection[T], describe: Callable[[T], D | None], respond: Callable[[list[D]], R]
    ) -> MaybeAwaitable[R]:
        """Describe all items, and return the result of `respond`; for many items, an awaitable of it.

        Args:
            items: a snapshot, which must not change during the work.
            describe: returns the description of one item, or None to leave the item out.
            respond: makes the result from the list of descriptions.
        """
        if not self.is_long(items):
            return respond([found for item in items if (found := describe(item)) is not None])
        return LongResponse(self._list_in_slices(items, describe, respond))

    async def _list_in_slices(
        self, items: Iterable[T], describe: Callable[[T], D | None], respond: Callable[[list[D]], R]
    ) -> R:
        descriptions = map(describe, items)
        return respond([found async for found in self.slices(descriptions) if found is not None])

    def stop(self) -> None:
        """Start no more work in the thread. Work that is running there can complete."""
        self._is_stopped = True
        self._thread.abandon()
