"""A log's segments in order."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter

from barnabas.broker.storage.segment import LogSegment

_BASE_OFFSET = attrgetter("base_offset")


class Segments:
    """Segments ascending by base offset, at least one. The last is the active one."""

    __slots__ = ("_segments", "active")

    def __init__(self, segments: list[LogSegment]) -> None:
        self._segments = segments
        self.active = segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    def __getitem__(self, index: int) -> LogSegment:
        return self._segments[index]

    def add(self, segment: LogSegment) -> None:
        """Add a new active segment."""
        self._segments.append(segment)
        self.active = segment

    def index_of(self, offset: int) -> int:
        """Return the index of the segment whose range contains `offset`; 0 if it is before all ranges."""
        return max(bisect_right(self._segments, offset, key=_BASE_OFFSET) - 1, 0)

    def from_offset(self, offset: int) -> list[LogSegment]:
        """Return the segment whose range contains `offset`, and all later ones."""
        return self._segments[self.index_of(offset) :]

    def from_index(self, index: int) -> list[LogSegment]:
        return self._segments[index:]

    def index_of_run(self, segments: Sequence[LogSegment]) -> int | None:
        """Return the index in this object at which the sequence `segments` begins.

        Return None unless this object has exactly these segments one after the other, in this order, and all
        of them are sealed.
        """
        index = self.index_of(segments[0].base_offset)
        end = index + len(segments)
        is_run = end < len(self) and all(
            there is segment for there, segment in zip(self._segments[index:end], segments, strict=True)
        )
        return index if is_run else None

    def replace(self, index: int, count: int, segment: LogSegment) -> None:
        """Replace the `count` segments from `index` on with one sealed segment."""
        self._segments[index : index + count] = [segment]

    def remove_first(self, count: int) -> list[LogSegment]:
        """Remove and return the oldest `count` segments."""
        taken = self._segments[:count]
        del self._segments[:count]
        return taken

    def remove_last(self) -> LogSegment:
        """Remove and return the active segment. The one before it becomes the active one."""
        taken = self._segments.pop()
        self.active = self._segments[-1]
        return taken
