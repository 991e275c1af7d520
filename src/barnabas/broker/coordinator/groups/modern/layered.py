"""A mutable view of a dict that stores changes outside of the dict.

Its creation takes constant time, unlike that of a copy.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Layered(MutableMapping[K, V]):
    """A mutable view of a dict. Changes of the view do not change the dict.

    The view iterates in the order of a copy of the dict with the same changes. The view becomes invalid when
    the dict changes.
    """

    __slots__ = ("_below", "_changed", "_gone", "_size")

    def __init__(self, below: MutableMapping[K, V]) -> None:
        self._below = below
        self._changed: dict[K, V] = {}
        #: keys of the mapping below that were removed; a key that is set again moves to the end
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
