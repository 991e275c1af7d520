"""Runs blocking work in virtual time: the event loop makes each call, after a random delay."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from functools import partial
from random import Random
from typing import Any, NamedTuple, ParamSpec, TypeVar

from barnabas.base.environment.blocking import ForEach

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class _Call(NamedTuple):
    function: Callable[[], Any]
    future: asyncio.Future[Any]


class VirtualThreads:
    """`barnabas.base.environment.blocking.Blocking` without threads: the event loop makes the calls.

    A call takes effect at one moment. A random delay passes before this moment, and another one before the
    caller gets the result. Other callbacks run during both delays.

    Args:
        random: the source of the delays.
        mean_delay: the mean of each delay, in seconds. The delays have an exponential distribution.
    """

    def __init__(self, random: Random, mean_delay: float = 0.001) -> None:
        self._random = random
        #: may be changed at any time
        self.mean_delay = mean_delay
        #: for how many seconds the call that is being made has slept: its time is so much ahead of the loop
        self.ahead = 0.0
        #: what is to be made once the disk answers again; None while it does
        self._hung: list[tuple[Context, Callable[[], None]]] | None = None

    def hang(self) -> None:
        """Make no more calls until `unhang`, like threads that wait for a disk without an answer."""
        if self._hung is None:
            self._hung = []

    def unhang(self) -> None:
        """Make all calls that `hang` has delayed."""
        hung, self._hung = self._hung, None
        for context, make in hung or ():
            asyncio.get_running_loop().call_soon(make, context=context)

    def is_hung(self, make: Callable[[], None]) -> bool:
        """Return whether calls are delayed. If so, keep `make` and call it after `unhang`."""
        if self._hung is not None:
            self._hung.append((copy_context(), make))
        return self._hung is not None

    def pool(self, name: str, threads: int) -> VirtualPool:
        return VirtualPool(self, threads)

    def signal(self) -> VirtualSignal:
        return VirtualSignal(self)

    @contextmanager
    def side_by_side(self, threads: int) -> Iterator[ForEach]:
        def for_each(function: Callable[[T], object], items: Iterable[T], /) -> None:
            for item in items:
                function(item)

        yield for_each

    def delay(self) -> float:
        """Return a random delay in seconds."""
        return self._random.expovariate(1 / self.mean_delay)


class VirtualPool:
    """A pool of `VirtualThreads`. It has at most `threads` calls at a time, and begins them in order."""

    def __init__(self, owner: VirtualThreads, threads: int) -> None:
        self._owner = owner
        self._free = threads
        self._waiting: deque[_Call] = deque()
        self._running: dict[asyncio.Future[Any], None] = {}
        self._is_closed = False

    def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[R]:
        if self._is_closed:
            raise RuntimeError("the pool is closed")
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Call(partial(function, *args, **kwargs), future))
        self._begin()
        return future

    async def close(self) -> None:
        self._is_closed = True
        while self._running:
            await asyncio.wait(list(self._running))

    def abandon(self) -> None:
        self._is_closed = True
        waiting, self._waiting = self._waiting, deque()
        for call in waiting:
            call.future.cancel()

    def _begin(self) -> None:
        while self._free and self._waiting:
            call = self._waiting.popleft()
            if not call.future.cancelled():
                self._free -= 1
                # Not the caller's future: that may be cancelled while the call goes on.
                done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                self._running[done] = None
                asyncio.get_running_loop().call_later(self._owner.delay(), self._make, call, done)

    def _make(self, call: _Call, done: asyncio.Future[Any]) -> None:
        if self._owner.is_hung(lambda: self._make(call, done)):
            return
        result: Any = None
        failure: BaseException | None = None
        try:
            result = call.function()
        except BaseException as error:
            failure = error
        slept, self._owner.ahead = self._owner.ahead, 0.0
        loop = asyncio.get_running_loop()
        loop.call_later(self._owner.delay() + slept, self._end, call.future, done, result, failure)

    def _end(
        self,
        future: asyncio.Future[Any],
        done: asyncio.Future[Any],
        result: object,
        failure: BaseException | None,
    ) -> None:
        self._free += 1
        del self._running[done]
        done.set_result(None)
        if not future.cancelled():
            if failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(result)
        self._begin()


class VirtualSignal:
    """A signal for blocking calls. The result of a call that waits for it is delayed by the waiting time."""

    def __init__(self, owner: VirtualThreads) -> None:
        self._owner = owner
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def wait(self, seconds: float) -> bool:
        if not self._is_set:
            self._owner.ahead += seconds
        return self._is_set
