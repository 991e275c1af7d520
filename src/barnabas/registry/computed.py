"""Caches results that take long to compute, so that the event loop never waits for them.

Code in the event loop reads a result from the cache. If the result is missing, `NotComputed` is raised. The
outermost caller catches this error, computes the result in another process, and calls the code again from its
beginning. So no decision is interrupted while the state might change.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from barnabas.registry.errors import RegistryError

T = TypeVar("T")


class NotComputed(Exception):
    """The cache has no result yet.

    Call `compute` in a thread, with a deadline on the clock of `time.monotonic` (seconds). Then repeat the
    whole operation.

    `compute` stores the result in the cache. An error of the schema (status below 500) is stored as a result.
    For other errors, `compute` raises RegistryError.
    """

    def __init__(self, compute: Callable[[float], None]) -> None:
        super().__init__("the answer is to be computed first")
        self.compute = compute


class Computed(Generic[T]):
    """A cache of results, and of the errors of invalid schemas. Any thread can use it.

    The most recently used results are kept, up to a total weight of `size`.

    Args:
        size: largest total weight, in characters.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._used = 0
        self._lock = threading.Lock()
        self._known: dict[Hashable, tuple[int, T | RegistryError]] = {}

    def __call__(self, question: Hashable, weight: int, compute: Callable[[float], T]) -> T:
        """Return the cached result for the key `question`, or raise the cached RegistryError.

        If the cache has neither, raise NotComputed.

        Args:
            weight: weight of the result, in characters.
            compute: computes the result. `NotComputed.compute` calls it later, with a deadline on the clock
                of `time.monotonic`.
        """
        with self._lock:
            if question not in self._known:
                raise NotComputed(lambda deadline: self._compute(question, weight, compute, deadline))
            entry = self._known[question] = self._known.pop(question)  # now the most recently used
        found = entry[1]
        if isinstance(found, RegistryError):
            raise found.with_traceback(None)
        return found

    def _compute(
        self, question: Hashable, weight: int, compute: Callable[[float], T], deadline: float
    ) -> None:
        made: T | RegistryError
        try:
            made = compute(deadline)
        except RegistryError as error:
            if error.status >= 500:
                raise  # the next try may succeed
            made = error
        with self._lock:
            if question not in self._known:
                self._used += weight
            self._known[question] = (weight, made)
            while self._used > self._size and len(self._known) > 1:
                oldest = next(iter(self._known))
                self._used -= self._known.pop(oldest)[0]
