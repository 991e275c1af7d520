"""Schemas that take a compiler, which would hold up the event loop.

What decides on schemas asks for one as for any other, and gets it when it has been compiled before. When it
has not, `Uncompiled` comes up through all that was asked; who began has it compiled in a thread, and begins
again. So no decision waits in the middle, where the state might change under it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Uncompiled(Exception):
    """Call `compile` where it may block, then ask again. What it raises is the answer."""

    def __init__(self, compile_: Callable[[], None]) -> None:
        super().__init__("a schema is to be compiled first")
        self.compile = compile_


class Compiled(Generic[T]):
    """What `compiler` makes of texts, the `size` that were asked for last; for any thread."""

    def __init__(self, compiler: Callable[..., T], size: int) -> None:
        self._compiler = compiler
        self._size = size
        self._lock = threading.Lock()
        self._known: dict[tuple[object, ...], T] = {}

    def __call__(self, *source: object) -> T:
        """What was made of `source`. Raises Uncompiled."""
        with self._lock:
            if source not in self._known:
                raise Uncompiled(lambda: self._compile(source))
            found = self._known.pop(source)
            self._known[source] = found  # the last one again
            return found

    def _compile(self, source: tuple[object, ...]) -> None:
        made = self._compiler(*source)
        with self._lock:
            self._known[source] = made
            while len(self._known) > self._size:
                del self._known[next(iter(self._known))]
