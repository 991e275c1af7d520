"""A lock for each key, held by an operation until its records are committed.

An operation *alone* is exclusive: it sees the outcome of all earlier ones, and no other runs beside it.
Operations *together* (offset commits, which do not read each other's) are shared: they may run at the same
time. Operations that have to wait are served in the order of arrival, so neither kind starves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable


class _Key:
    """The running and the waiting operations of one key; dropped when there are none."""

    __slots__ = ("alone", "together", "waiting")

    def __init__(self) -> None:
        self.alone = False
        self.together = 0
        self.waiting: deque[tuple[bool, Callable[[], None]]] = deque()

    def admits(self, together: bool) -> bool:
        return not self.alone and (together or not self.together)


class Turns:
    """Readers and writers, by key, without a task for either."""

    def __init__(self) -> None:
        self._keys: dict[Hashable, _Key] = {}

    def is_free(self, key: Hashable, together: bool) -> bool:
        """Whether an operation may run at once."""
        state = self._keys.get(key)
        return state is None or (not state.waiting and state.admits(together))

    def wait(self, key: Hashable, together: bool, run: Callable[[], None]) -> None:
        """Call `run` when the operation may run."""
        self._keys[key].waiting.append((together, run))

    def take(self, key: Hashable, together: bool) -> None:
        """The operation that has just run holds its turn until `give_back`."""
        state = self._keys.setdefault(key, _Key())
        if together:
            state.together += 1
        else:
            state.alone = True

    def give_back(self, key: Hashable, together: bool) -> None:
        """An operation's records are committed, or never will be: on with those who wait."""
        state = self._keys[key]
        if together:
            state.together -= 1
        else:
            state.alone = False
        while state.waiting and state.admits(state.waiting[0][0]):
            _, run = state.waiting.popleft()
            run()
        if not (state.waiting or state.alone or state.together):
            self._keys.pop(key, None)

    def clear(self) -> None:
        """Call everybody who waits; nothing is under way any more."""
        keys, self._keys = self._keys, {}
        for state in keys.values():
            for _, run in state.waiting:
                run()
