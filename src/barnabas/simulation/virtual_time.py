"""An event loop whose time passes only when nothing is left to run: timers fire at once, in order.

A test of timeouts then takes no time, and is the same at every run. Real sockets and threads have no place in
it: what waits for neither a timer nor a ready callback would wait for ever, and is reported as a deadlock.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class Deadlock(RuntimeError):
    """Nothing is ready and no timer is set: the coroutine under test would never finish."""


class _VirtualSelector(selectors.BaseSelector):
    """Instead of waiting for files, moves the loop's clock on by the time it was asked to wait."""

    def __init__(self) -> None:
        self.now = 0.0
        self._real = selectors.DefaultSelector()  # holds the loop's own wake-up pipe

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("nothing is ready and no timer is set")
        self.now += max(timeout, 0.0)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio loop in virtual time, which starts at 0."""

    def __init__(self) -> None:
        self._virtual = _VirtualSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def run_virtual(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time.

    Raises:
        Deadlock: it waits for something that no timer will bring.
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(coroutine)
