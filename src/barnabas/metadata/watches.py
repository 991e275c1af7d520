"""Who wants to hear of which part of the tree."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.metadata.store import Watcher
from barnabas.metadata.tree import ROOT, Change, parent_of
from barnabas.text import logger_of

log = logger_of(__name__)


class Watches:
    """Watchers by the path they watch, each for all that lies below it too."""

    def __init__(self) -> None:
        self._watchers: dict[str, list[Watcher]] = {}

    def add(self, path: str, watcher: Watcher) -> None:
        self._watchers.setdefault(path, []).append(watcher)

    def clear(self) -> None:
        self._watchers.clear()

    def report(self, changes: Iterable[Change]) -> None:
        """Tell each watcher of each change. What a watcher raises is logged: it must not fail the write."""
        for change in changes:
            path = change.path
            while True:
                for watcher in self._watchers.get(path, ()):
                    try:
                        watcher(change.event, change.path)
                    except Exception:
                        log.exception("a watcher of %s failed on %s", path, change.path)
                if path == ROOT:
                    break
                path = parent_of(path)
