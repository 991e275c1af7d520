"""Work that blocks, beside the event loop: pools of threads behind an interface that a simulation can serve.

What runs in a pool must own its data: nothing that belongs to the event loop is touched from a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from threading import Event, Lock
from typing import Any, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

#: Makes what a few threads share change in one step. It is held for a moment, never over a wait.
Mutex = Lock


class Pool(Protocol):
    """Some threads, which begin calls in the order they were given. Used from the event loop alone."""

    def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[R]:
        """Call `function` in a thread; a future of what it returns or raises. Returns once it is handed over.

        Cancelling the future prevents a call that has not begun, and lets one that has begun go on.
        """
        ...

    async def close(self) -> None:
        """Wait until everything that was given has been done, and take no more."""
        ...

    def abandon(self) -> None:
        """Begin nothing more, and do not wait for what runs."""
        ...


class Signal(Protocol):
    """Told once, from any thread, to work that is under way in another."""

    def set(self) -> None: ...

    def wait(self, seconds: float) -> bool:
        """Stop the calling thread until the signal is set, `seconds` at most; whether it is set."""
        ...


class ForEach(Protocol):
    """Calls a function with each item, some at a time."""

    def __call__(self, function: Callable[[T], object], items: Iterable[T], /) -> None:
        """Return when all calls have been made.

        Raises:
            Exception: what a call raised; of several, that of the first item.
        """
        ...


class Blocking(Protocol):
    """Where a broker's blocking work is done."""

    def pool(self, name: str, threads: int) -> Pool:
        """A new pool; close or abandon it."""
        ...

    def signal(self) -> Signal:
        """A signal to what runs in a pool."""
        ...

    def side_by_side(self, threads: int) -> AbstractContextManager[ForEach]:
        """For code that blocks itself: within the block, calls are made in as many threads."""
        ...


class ThreadPool:
    """A pool of the operating system's threads."""

    def __init__(self, name: str, threads: int) -> None:
        self._executor = ThreadPoolExecutor(threads, name)
        self._running: dict[asyncio.Future[Any], None] = {}

    def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[R]:
        loop = asyncio.get_running_loop()
        future = asyncio.wrap_future(self._executor.submit(function, *args, **kwargs), loop=loop)
        self._running[future] = None
        future.add_done_callback(self._running.pop)
        return future

    async def close(self) -> None:
        while self._running:
            await asyncio.wait(list(self._running))
        self._executor.shutdown()  # what was cancelled when it had begun may still run

    def abandon(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)


class Threads:
    """`Blocking` by the operating system's threads."""

    def pool(self, name: str, threads: int) -> ThreadPool:
        return ThreadPool(name, threads)

    def signal(self) -> Event:
        return Event()

    @contextmanager
    def side_by_side(self, threads: int) -> Iterator[ForEach]:
        with ThreadPoolExecutor(threads) as executor:

            def for_each(function: Callable[[T], object], items: Iterable[T], /) -> None:
                for _ in executor.map(function, items):
                    pass

            yield for_each
