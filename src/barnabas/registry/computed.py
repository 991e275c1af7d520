"""Answers that take long, for an event loop that may not wait.

What decides on schemas asks for an answer as for any other, and gets it when it has been computed before.
When it has not, `NotComputed` comes up through all that was asked; who began has it computed elsewhere, and
begins again. So no decision waits in the middle, where the state might change under it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from barnabas.registry.errors import RegistryError

T = TypeVar("T")


class NotComputed(Exception):
    """Call `compute` with a deadline where it may block, then ask again.

    It raises a RegistryError when the registry is at fault. What the schema is at fault for is an answer too.
    """

    def __init__(self, compute: Callable[[float], None]) -> None:
        super().__init__("the answer is to be computed first")
        self.compute = compute


class Computed(Generic[T]):
    """Answers to questions, or why they are refused; for any thread.

    Kept are those that were asked for last, as many as weigh `size` together.

    Args:
        size: the weights that are kept, in characters.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._used = 0
        self._lock = threading.Lock()
        self._known: dict[Hashable, tuple[int, T | RegistryError]] = {}

    def __call__(self, question: Hashable, weight: int, compute: Callable[[float], T]) -> T:
        """The answer to `question`, or what `compute` raised. Raises NotComputed."""
        with self._lock:
            if question not in self._known:
                raise NotComputed(lambda deadline: self._compute(question, weight, compute, deadline))
            entry = self._known[question] = self._known.pop(question)  # the last one now
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
                raise  # another time it may succeed
            made = error
        with self._lock:
            if question not in self._known:
                self._used += weight
            self._known[question] = (weight, made)
            while self._used > self._size and len(self._known) > 1:
                oldest = next(iter(self._known))
                self._used -= self._known.pop(oldest)[0]
