"""Raises alerts for queries that have too much lag, or work on one batch, for too long."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from barnabas.pipelines.status import QueryStatus


class Alert(ABC):
    """Base class of the alerts of a pipeline. A subclass decides which queries have its alert.

    A pipeline runs one or more Spark queries. About once a second, it calls `look` with the status of all of
    them.

    Args:
        say: called with a sentence when an alert begins, and when it ends.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._raised: set[str] = set()

    def look(self, queries: Iterable[QueryStatus]) -> list[str]:
        """Check all queries of the pipeline. Return a sentence for each query that has this alert now.

        If the alert of a query has begun or ended since the last call, also call `say` with a sentence, for
        example ``alert: orders is 5,000 records behind, more than alert_lag=1,000``.

        Args:
            queries: the status of each query, such as its lag and its present batch.
        """
        found = []
        for query in queries:
            alert, end = self._judge(query)
            if alert:
                found.append(alert)
                if query.query not in self._raised:
                    self._raised.add(query.query)
                    self._say(f"alert: {alert}")
            elif query.query in self._raised:
                self._raised.remove(query.query)
                self._say(end)
        return found

    @abstractmethod
    def _judge(self, query: QueryStatus) -> tuple[str, str]:
        """Return the sentence of the query's alert, and the sentence for the end of the alert.

        The first is empty if the query has no alert. The second is used only then.
        """


class LagAlert(Alert):
    """Raises an alert for a query that is more than `max_lag` records behind for `after_s` seconds.

    An unknown lag counts as 0.

    Args:
        max_lag: number of records; 0 means that there are no alerts.
        after_s: the seconds for which the lag must be too large.
        clock: returns the time in seconds.
        say: called with a sentence when an alert begins, and when it ends.
    """

    def __init__(
        self, max_lag: int, after_s: float, clock: Callable[[], float], say: Callable[[str], None]
    ) -> None:
        super().__init__(say)
        self._max_lag = max_lag
        self._after_s = after_s
        self._clock = clock
        self._behind_since: dict[str, float] = {}

    def _judge(self, query: QueryStatus) -> tuple[str, str]:
        name, lag = query.query, query.lag or 0
        if not self._max_lag or lag <= self._max_lag:
            self._behind_since.pop(name, None)
            return "", f"{name} has caught up: it is {lag:,} records behind"
        now = self._clock()
        is_late = now - self._behind_since.setdefault(name, now) >= self._after_s
        if not is_late:
            return "", ""
        return f"{name} is {lag:,} records behind, more than alert_lag={self._max_lag:,}", ""


class StuckAlert(Alert):
    """Raises an alert for a query that works on one batch for too long.

    Args:
        after_s: the seconds for which a query may work on one batch; 0 means that there are no alerts.
        say: called with a sentence when an alert begins, and when it ends.
    """

    def __init__(self, after_s: float, say: Callable[[str], None]) -> None:
        super().__init__(say)
        self._after_s = after_s

    def _judge(self, query: QueryStatus) -> tuple[str, str]:
        if not self._after_s or (query.busy_s or 0) < self._after_s:
            return "", f"{query.query} has gone on"
        batch = 0 if query.batch is None else query.batch + 1
        return f"{query.query} has been at batch {batch} for {words_of(query.busy_s or 0)}", ""


def words_of(seconds: int) -> str:
    """Return a duration in its largest unit that is not 0: 45 s, 12 min, 26 h."""
    if seconds < 60:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 3600 else f"{seconds // 3600} h"
