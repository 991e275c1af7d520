"""Alerts on lag: which queries are too far behind, and have been for too long."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barnabas.pipelines.status import QueryStatus


class LagAlert:
    """Judges the queries' lag each time it is told to; says once when an alert begins, and when it ends.

    Args:
        most: how many records a query may be behind; 0 for no alerts at all.
        after_s: for how long it may be further behind, in seconds.
        clock: gives seconds.
        say: is told the beginning and the end of an alert, in a sentence.
    """

    def __init__(
        self, most: int, after_s: float, clock: Callable[[], float], say: Callable[[str], None]
    ) -> None:
        self._most = most
        self._after_s = after_s
        self._clock = clock
        self._say = say
        self._behind_since: dict[str, float] = {}
        self._raised: set[str] = set()

    def look(self, queries: Iterable[QueryStatus]) -> list[str]:
        """The alerts that stand now, in sentences."""
        if not self._most:
            return []
        now = self._clock()
        standing = []
        for query in queries:
            name, lag = query.query, query.lag or 0
            if lag <= self._most:
                self._behind_since.pop(name, None)
                if name in self._raised:
                    self._raised.remove(name)
                    self._say(f"{name} has caught up: it is {lag:,} records behind")
                continue
            since = self._behind_since.setdefault(name, now)
            if now - since < self._after_s:
                continue
            words = f"{name} is {lag:,} records behind, more than alert_lag={self._most:,}"
            standing.append(words)
            if name not in self._raised:
                self._raised.add(name)
                self._say(f"alert: {words}")
        return standing
