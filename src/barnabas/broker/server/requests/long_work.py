"""Work that would hold the event loop for too long: done in a thread, or in slices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sized
from typing import ParamSpec, TypeVar

from barnabas.base.environment.environment import Environment
from barnabas.broker.answers import Answer, LongAnswer

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
D = TypeVar("D")

#: how long one slice may last, in seconds; a step of the work begun within it is finished
SLICE = 0.002
#: how many things a listing describes in one turn: a few milliseconds
LISTED_AT_ONCE = 500


class LongWork:
    """One broker's long work. There is one thread for it, since threads share the interpreter with the loop.

    A function in the thread must own its data: it may use nothing of the broker's state.
    """

    def __init__(self, environment: Environment) -> None:
        self._thread = environment.blocking.pool("long work", 1)
        #: seconds since some moment
        self.now = environment.clock.monotonic
        self._turn = asyncio.Lock()
        self._is_stopped = False

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `function` in the thread. Raises what it raises.

        The call is cancelled once the broker has stopped: a request that waited until then, for an fsync for
        one, has no client any more.
        """
        if self._is_stopped:
            raise asyncio.CancelledError
        return await self._thread.run(function, *args, **kwargs)

    async def slices(self, items: Iterable[T]) -> AsyncIterator[T]:
        """The items one after another; the event loop serves others whenever a slice is over.

        However much long work there is, a turn of the loop has one slice of it.
        """
        end = self.now() + SLICE
        for item in items:
            yield item
            if self.now() >= end:
                end = await self.next_slice()

    async def next_slice(self) -> float:
        """Let the event loop serve others; return when the slice ends that begins now."""
        async with self._turn:
            await asyncio.sleep(0)
        return self.now() + SLICE

    def is_long(self, items: Sized) -> bool:
        """Whether a listing of so many things is made in slices."""
        return len(items) > LISTED_AT_ONCE

    def listed(
        self, items: Collection[T], describe: Callable[[T], D | None], respond: Callable[[list[D]], R]
    ) -> Answer[R]:
        """The result of `respond` for the descriptions of all items: at once for few, in slices for many.

        Args:
            items: a snapshot, which must not change meanwhile.
            describe: None leaves the item out.
        """
        if not self.is_long(items):
            return respond([found for item in items if (found := describe(item)) is not None])
        return LongAnswer(self._list_in_slices(items, describe, respond))

    async def _list_in_slices(
        self, items: Iterable[T], describe: Callable[[T], D | None], respond: Callable[[list[D]], R]
    ) -> R:
        descriptions = map(describe, items)
        return respond([found async for found in self.slices(descriptions) if found is not None])

    def stop(self) -> None:
        """Wait for running work to end, and begin no more."""
        self._is_stopped = True
        self._thread.abandon()
