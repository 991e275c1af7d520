"""Schemas that take a compiler, which would hold up the event loop.

What decides on schemas asks for one as for any other, and gets it when it has been compiled before. When it
has not, `Uncompiled` comes up through all that was asked; who began has it compiled in a thread, and begins
again. So no decision waits in the middle, where the state might change under it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from barnabas.registry.errors import InvalidSchemaError

T = TypeVar("T")

#: a text, the names and texts of what it refers to, and whether it is normalized
Source = tuple[str, tuple[tuple[str, str], ...], bool]


class Uncompiled(Exception):
    """Call `compile` where it may block, then ask again. It raises RegistryError when it had no time."""

    def __init__(self, compile_: Callable[[], None]) -> None:
        super().__init__("a schema is to be compiled first")
        self.compile = compile_


class Compiled(Generic[T]):
    """What `compiler` makes of sources, or why it refuses them; for any thread.

    Kept are those that were asked for last, as many as have `size` characters of text together.
    """

    def __init__(self, compiler: Callable[..., T], size: int) -> None:
        self._compiler = compiler
        self._size = size
        self._used = 0
        self._lock = threading.Lock()
        self._known: dict[Source, T | InvalidSchemaError] = {}

    def __call__(self, *source: *Source) -> T:
        """What was made of `source`. Raises Uncompiled, InvalidSchemaError."""
        with self._lock:
            if source not in self._known:
                raise Uncompiled(lambda: self._compile(source))
            found = self._known[source] = self._known.pop(source)  # the last one now
        if isinstance(found, InvalidSchemaError):
            raise found.with_traceback(None)
        return found

    def _compile(self, source: Source) -> None:
        made: T | InvalidSchemaError
        try:
            made = self._compiler(*source)
        except InvalidSchemaError as error:
            made = error
        with self._lock:
            if source not in self._known:
                self._used += _length(source)
            self._known[source] = made
            while self._used > self._size and len(self._known) > 1:
                oldest = next(iter(self._known))
                del self._known[oldest]
                self._used -= _length(oldest)


def _length(source: Source) -> int:
    text, references, _ = source
    return len(text) + sum(len(referred) for _, referred in references)
