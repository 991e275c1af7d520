"""Chooses the length of the time windows, for logs of minutes or of years."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

from barnabas.client.log_lines import parse_line

_LENGTHS = [
    *(timedelta(seconds=seconds) for seconds in (10, 30)),
    *(timedelta(minutes=minutes) for minutes in (1, 5, 10, 30)),
    *(timedelta(hours=hours) for hours in (1, 3, 6, 12)),
    *(timedelta(days=days) for days in (1, 3, 7, 14, 30)),
]

#: Into about this many windows a usual file is cut, as a plot has room for ...
_WINDOWS = 60
#: ... and the longest into at most so many.
_MAX_WINDOWS = 1_000
_EDGE_BYTES = 65_536


def choose_window(files: Iterable[Path]) -> timedelta:
    """Return a round length between the extremes of the files, so that neither years
    nor minutes alone decide.
    """
    spans = sorted(spanned for path in files if (spanned := span(path)))
    if not spans:
        return _LENGTHS[0]
    wanted = max(spans[len(spans) // 2] / _WINDOWS, spans[-1] / _MAX_WINDOWS)
    return next((length for length in _LENGTHS if length >= wanted), _LENGTHS[-1])


def span(path: Path) -> timedelta:
    """Return the time from the first to the last timestamp of a file; zero if its two
    ends have no timestamps.
    """
    with path.open("rb") as file:
        head = file.read(_EDGE_BYTES)
        file.seek(max(0, file.seek(0, os.SEEK_END) - _EDGE_BYTES))
        tail = file.read()
    times = [time for edge in (head, tail) for time in _times(edge)]
    return max(times) - min(times) if times else timedelta(0)


def _times(edge: bytes) -> Iterable[datetime]:
    for line in edge.decode("utf-8", "replace").splitlines():
        timestamp = parse_line(line, "")["timestamp"]
        if timestamp is not None:
            # a zone moves a file by hours at most, which does not matter to the length of a window
            yield datetime.fromisoformat(timestamp).replace(tzinfo=None)


def describe(length: timedelta) -> str:
    """Return the length as a text, for people and for Spark's ``window``, for example ``10 minutes``."""
    seconds = round(length.total_seconds())
    for unit, size in (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1)):
        if seconds % size == 0 and seconds >= size:
            return f"{seconds // size} {unit}{'s' * (seconds > size)}"
    return f"{seconds} seconds"
