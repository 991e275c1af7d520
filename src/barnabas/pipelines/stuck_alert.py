"""Alerts on queries that are stuck: at one batch for too long, while their lag stands still."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barnabas.pipelines.status import QueryStatus


class StuckAlert:
    """Judges the queries each time it is told to; says once when an alert begins, and when it ends.

    Args:
        after_s: for how long a query may be at one batch, in seconds; 0 for no alerts at all.
        say: is told the beginning and the end of an alert, in a sentence.
    """

    def __init__(self, after_s: float, say: Callable[[str], None]) -> None:
        self._after_s = after_s
        self._say = say
        self._raised: set[str] = set()

    def look(self, queries: Iterable[QueryStatus]) -> list[str]:
        """The alerts that stand now, in sentences."""
        standing = []
        for query in queries:
            name = query.query
            if not self._after_s or (query.busy_s or 0) < self._after_s:
                if name in self._raised:
                    self._raised.remove(name)
                    self._say(f"{name} has gone on")
                continue
            batch = 0 if query.batch is None else query.batch + 1
            words = f"{name} has been at batch {batch} for {words_of(query.busy_s or 0)}"
            standing.append(words)
            if name not in self._raised:
                self._raised.add(name)
                self._say(f"alert: {words}")
        return standing


def words_of(seconds: int) -> str:
    """A duration in its largest unit that is not 0: 45 s, 12 min, 26 h."""
    if seconds < 60:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 3600 else f"{seconds // 3600} h"
