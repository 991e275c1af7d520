"""A lock for each key, which an operation holds until its records are committed.

While an *exclusive* operation holds the lock, no other operation of the key runs. So this operation sees the
outcome of all earlier ones. *Shared* operations can run at the same time: an offset commit, for example, does
not read other offsets. Waiting operations run in the order of their arrival, so neither kind starves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable


class _Key:
    """The running and the waiting operations of one key. `KeyedLock` drops a key without operations."""

    __slots__ = ("exclusive", "shared", "waiting")

    def __init__(self) -> None:
        self.exclusive = False
        self.shared = 0
        self.waiting: deque[tuple[bool, Callable[[], None]]] = deque()

    def admits(self, shared: bool) -> bool:
        return not self.exclusive and (shared or not self.shared)


class KeyedLock:
    """A reader-writer lock for each key. Operations wait as callbacks, without a task or a future."""

    def __init__(self) -> None:
        #: the keys that operations hold or wait for
        self.keys: dict[Hashable, _Key] = {}

    def is_free(self, key: Hashable, shared: bool) -> bool:
        """Whether an operation on `key` can run at once. False if other operations wait for the key.

        `shared` says whether the operation is a shared or an exclusive one.
        """
        state = self.keys.get(key)
        return state is None or (not state.waiting and state.admits(shared))

    def wait(self, key: Hashable, shared: bool, run: Callable[[], None]) -> None:
        """Queue an operation on `key`: call `run` when its turn comes. `run` takes the lock with `acquire`.

        The caller must have found that the lock is not `is_free`.
        """
        self.keys[key].waiting.append((shared, run))

    def acquire(self, key: Hashable, shared: bool) -> None:
        """Take the lock until `release`, for an operation that has run and that is not committed yet.

        The method never waits, and does not check whether the lock is free.
        """
        state = self.keys.setdefault(key, _Key())
        if shared:
            state.shared += 1
        else:
            state.exclusive = True

    def release(self, key: Hashable, shared: bool) -> None:
        """Release the lock of an operation, and run the waiting operations that can now run.

        `shared` is the value that was passed to `acquire`.
        """
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
        """Drop all locks, because the shard is unloaded, and run every waiting operation.

        Each operation must itself notice that its shard is gone.
        """
        keys, self.keys = self.keys, {}
        for state in keys.values():
            for _, run in state.waiting:
                run()
