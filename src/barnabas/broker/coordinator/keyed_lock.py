"""A lock for each key, which an operation holds until its records are committed.

An *exclusive* operation sees the outcome of all earlier ones, and no other runs at the same time. *Shared*
operations (offset commits, which do not read what the others write) can run at the same time. Waiting
operations run in the order of their arrival, so neither kind starves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable


class _Key:
    """The running and the waiting operations of one key. The lock removes it when there are none."""

    __slots__ = ("exclusive", "shared", "waiting")

    def __init__(self) -> None:
        self.exclusive = False
        self.shared = 0
        self.waiting: deque[tuple[bool, Callable[[], None]]] = deque()

    def admits(self, shared: bool) -> bool:
        return not self.exclusive and (shared or not self.shared)


class KeyedLock:
    """A reader-writer lock for each key, without tasks."""

    def __init__(self) -> None:
        #: the keys that operations hold or wait for
        self.keys: dict[Hashable, _Key] = {}

    def is_free(self, key: Hashable, shared: bool) -> bool:
        """Whether an operation can run at once."""
        state = self.keys.get(key)
        return state is None or (not state.waiting and state.admits(shared))

    def wait(self, key: Hashable, shared: bool, run: Callable[[], None]) -> None:
        """Call `run` as soon as the operation can run."""
        self.keys[key].waiting.append((shared, run))

    def acquire(self, key: Hashable, shared: bool) -> None:
        """Keep the lock for the operation that has just run, until `release`."""
        state = self.keys.setdefault(key, _Key())
        if shared:
            state.shared += 1
        else:
            state.exclusive = True

    def release(self, key: Hashable, shared: bool) -> None:
        """Release the lock of an operation, and run those that wait."""
        state = self.keys[key]
        if shared:
            state.shared -= 1
        else:
            state.exclusive = False
        while state.waiting and state.admits(state.waiting[0][0]):
            _, run = state.waiting.popleft()
            run()
        if not (state.waiting or state.exclusive or state.shared):
            self.keys.pop(key, None)

    def clear(self) -> None:
        """Run all waiting operations, because no operation is in progress any more."""
        keys, self.keys = self.keys, {}
        for state in keys.values():
            for _, run in state.waiting:
                run()
