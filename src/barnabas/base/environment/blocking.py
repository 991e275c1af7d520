"""Pools of threads for blocking work, behind an interface that a simulation can implement.

A function that runs in a pool must own its data: threads touch nothing that belongs to the event loop.
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

#: Guards state that a few threads share. It is held briefly, never over a wait.
Mutex = Lock


class Pool(Protocol):
    """A pool of threads, which start calls in the order of submission. Use it only on the event loop."""

    def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[R]:
        """Submit a call of `function` to a thread; return a future of its result, or of its exception.

        If the future is cancelled before the call starts, the call is not made. A call that has started
        continues.
        """
        ...

    async def close(self) -> None:
        """Accept no more calls, and wait until those that were submitted have ended."""
        ...

    def abandon(self) -> None:
        """Start no more calls, and do not wait for the running ones."""
        ...


class Signal(Protocol):
    """An event that any thread can set once, to notify another thread."""

    def set(self) -> None: ...

    def wait(self, seconds: float) -> bool:
        """Block the thread until the signal is set, for `seconds` at most; return whether it is set."""
        ...


class ForEach(Protocol):
    """A function that calls another function with each item, several at a time."""

    def __call__(self, function: Callable[[T], object], items: Iterable[T], /) -> None:
        """Call `function` with each item, and return when all calls have ended.

        Raises:
            Exception: a call has failed. If several have failed, this is the error of the first item in the
                order of `items`. Then calls can still run, and calls that have not started are not made.
        """
        ...


class Blocking(Protocol):
    """Creates the thread pools in which a broker's blocking work runs."""

    def pool(self, name: str, threads: int) -> Pool:
        """Return a new pool of that many threads. The caller must close or abandon the pool.

        `name` is the prefix of the threads' names.
        """
        ...

    def signal(self) -> Signal:
        """Return a new signal, for which calls in a pool can wait."""
        ...

    def side_by_side(self, threads: int) -> AbstractContextManager[ForEach]:
        """Return a context manager that gives a `ForEach` with that many threads.

        Use it only in code that may block, such as code in a pool.
        """
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
        self._executor.shutdown()  # a call that was cancelled after its start may still run

    def abandon(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)


class Threads:
    """An implementation of `Blocking` with the operating system's threads."""

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
