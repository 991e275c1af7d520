"""Runs work that would block the event loop for too long, in a thread or in slices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sized
from functools import partial
from typing import ParamSpec, TypeVar

from barnabas.base.environment.blocking import Pool
from barnabas.base.environment.environment import Environment
from barnabas.base.types import Buffer
from barnabas.broker.awaitables import LongResponse, MaybeAwaitable
from barnabas.broker.config import TopicConfig
from barnabas.broker.storage import Origin, ValidBatch, validate_batch

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
D = TypeVar("D")

#: how long one slice may last, in seconds; a step of the work begun within it is finished
SLICE = 0.002
#: largest number of items that a listing describes in one turn: a few milliseconds
LISTED_AT_ONCE = 500


class LongWork:
    """Runs the long work of one broker, in a thread or in slices on the event loop.

    There is one thread for nearly all work, because threads and the event loop share the GIL. Only
    compressions have another thread. The codecs release the GIL, and one batch can take longer than 0.1 s. A
    function in a thread must not use the broker's state, only data that belongs to it alone.
    """

    def __init__(self, environment: Environment) -> None:
        self._thread = environment.blocking.pool("long work", 1)
        self._compressing = environment.blocking.pool("compression", 1)
        #: seconds since some moment
        self.now = environment.clock.monotonic
        self._turn = asyncio.Lock()
        self._is_stopped = False

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `function` in the thread. Return its result, or raise its exception.

        Raises:
            asyncio.CancelledError: the broker has stopped, so no client waits for the result.
        """
        return await self._run(self._thread, partial(function, *args, **kwargs))

    async def validate(self, records: Buffer, config: TopicConfig, now_ms: int) -> ValidBatch:
        """Call `validate_batch` in a thread, for the batch of a client that has raised LongValidation.

        Raises:
            KafkaError: the errors of `validate_batch`.
            asyncio.CancelledError: as `run`.
        """
        thread = self._thread if config.compression_type == "producer" else self._compressing
        return await self._run(
            thread, partial(validate_batch, records, config, Origin.CLIENT, now_ms, at_once=False)
        )

    async def _run(self, thread: Pool, function: Callable[[], R]) -> R:
        if self._is_stopped:
            raise asyncio.CancelledError
        return await thread.run(function)

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
        """Start no more work in the threads. Work that is running there can complete."""
        self._is_stopped = True
        self._thread.abandon()
        self._compressing.abandon()
