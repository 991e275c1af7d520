"""A mapping of changes above another mapping: to make one costs the same for any number of keys."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Layered(MutableMapping[K, V]):
    """A changeable view of a dict, which it leaves alone. The order is that of a changed copy.

    Do not use it any more when the dict has changed.
    """

    __slots__ = ("_below", "_changed", "_gone", "_size")

    def __init__(self, below: MutableMapping[K, V]) -> None:
        self._below = below
        self._changed: dict[K, V] = {}
        #: keys of the mapping below that were removed; those that came back are behind all others
        self._gone: dict[K, None] = {}
        self._size = len(below)

    def __getitem__(self, key: K) -> V:
        if key in self._changed:
            return self._changed[key]
        if key in self._gone:
            raise KeyError(key)
        return self._below[key]

    def __setitem__(self, key: K, value: V) -> None:
        if key not in self:
            self._size += 1
        self._changed[key] = value

    def __delitem__(self, key: K) -> None:
        if key not in self:
            raise KeyError(key)
        self._size -= 1
        self._changed.pop(key, None)
        if key in self._below:
            self._gone[key] = None

    def __contains__(self, key: object) -> bool:
        return key in self._changed or (key in self._below and key not in self._gone)

    def __iter__(self) -> Iterator[K]:
        for key in self._below:
            if key not in self._gone:
                yield key
        for key in self._changed:
            if key in self._gone or key not in self._below:
                yield key

    def __len__(self) -> int:
        return self._size
