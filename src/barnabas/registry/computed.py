"""Results that take long to compute, without delay for the event loop.

Code that decides on schemas asks for a result, and receives it if it was computed before. Otherwise it raises
`NotComputed`, which its outermost caller handles: it has the result computed in another process, and calls
the code again. So no decision waits half-way while the state might change.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from barnabas.registry.errors import RegistryError

T = TypeVar("T")


class NotComputed(Exception):
    """The result is not computed yet. Call `compute` with a deadline in a thread, and then ask again.

    `compute` raises a RegistryError for an error of the registry. An error of the schema is a result.
    """

    def __init__(self, compute: Callable[[float], None]) -> None:
        super().__init__("the answer is to be computed first")
        self.compute = compute


class Computed(Generic[T]):
    """A cache of results and refusals. Any thread can use it.

    It keeps the most recently used results, up to a total weight of `size`.

    Args:
        size: largest total weight, in characters.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._used = 0
        self._lock = threading.Lock()
        self._known: dict[Hashable, tuple[int, T | RegistryError]] = {}

    def __call__(self, question: Hashable, weight: int, compute: Callable[[float], T]) -> T:
        """Return the result for `question`, or raise the error of `compute`. Raises NotComputed."""
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
