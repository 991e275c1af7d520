"""Finds changes of the cluster in the differences between reads of the overview.

Brokers do not report changes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterator
from typing import NamedTuple

#: how many events are kept, and how many names one of them lists
_KEPT, _NAMED = 100, 3


class ClusterSnapshot(NamedTuple):
    """A snapshot of the cluster.

    `offline` and `under_replicated` have the names of partitions, such as ``orders-0``.
    """

    brokers: frozenset[int]
    controller: int
    topics: frozenset[str]
    offline: frozenset[str]
    under_replicated: frozenset[str]


class Event(NamedTuple):
    """A change that was found at the time `at`, in milliseconds since 1970."""

    at: int
    text: str


class Events:
    """The last hundred changes of the cluster. Any thread can use this object."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._before: ClusterSnapshot | None = None
        self._events: deque[Event] = deque(maxlen=_KEPT)

    def look(self, at_ms: int, seen: ClusterSnapshot) -> None:
        """Compare the snapshot `seen` with the snapshot of the last call. Add an event for each difference.

        The first call adds no event.
        """
        with self._lock:
            if self._before is not None and seen != self._before:
                self._events.extendleft(Event(at_ms, text) for text in _changes(self._before, seen))
            self._before = seen

    def add(self, at_ms: int, text: str) -> None:
        """Add an event for a change that the console itself has made."""
        with self._lock:
            self._events.appendleft(Event(at_ms, text))

    def recent(self) -> list[Event]:
        """Return the events, newest first."""
        with self._lock:
            return list(self._events)


def _changes(before: ClusterSnapshot, now: ClusterSnapshot) -> Iterator[str]:
    for broker in sorted(before.brokers - now.brokers):
        yield f"broker {broker} has gone"
    for broker in sorted(now.brokers - before.brokers):
        yield f"broker {broker} has joined"
    # Apache Kafka (KRaft) names any broker as the controller, another each time.
    if before.controller != now.controller and before.controller not in now.brokers:
        yield f"broker {now.controller} is the controller, which was {before.controller}"
    yield from _sentences(now.topics - before.topics, "was created", "were created")
    yield from _sentences(before.topics - now.topics, "was deleted", "were deleted")
    for past, present, lost, back in (
        (before.offline, now.offline, "no leader", "a leader again"),
        (before.under_replicated, now.under_replicated, "replicas out of sync", "all replicas in sync again"),
    ):
        yield from _sentences(present - past, f"has {lost}", f"have {lost}")
        there = {name for name in past - present if name.rpartition("-")[0] in now.topics}
        yield from _sentences(there, f"has {back}", f"have {back}")


def _sentences(names: Collection[str], one: str, several: str) -> Iterator[str]:
    if names:
        first = sorted(names, key=lambda name: (name.startswith("__"), name))[:_NAMED]  # users' topics first
        more = f" and {len(names) - len(first):,} more" if len(names) > len(first) else ""
        yield f"{', '.join(first)}{more} {one if len(names) == 1 else several}"
