"""The watchers of the tree, by the path they watch."""

from __future__ import annotations

from barnabas.base.text import logger_of
from barnabas.broker.metadata.store import Cancel, Event, Watcher
from barnabas.broker.metadata.tree import ROOT, parent_of

log = logger_of(__name__)


class Watches:
    """Watchers by the path they watch, each for all nodes below it too."""

    def __init__(self) -> None:
        self._watchers: dict[str, list[Watcher]] = {}

    def add(self, path: str, watcher: Watcher) -> Cancel:
        """Report to `watcher` until the answer is called."""
        self._watchers.setdefault(path, []).append(watcher)

        def cancel() -> None:
            watchers = self._watchers.get(path, [])
            if watcher in watchers:
                watchers.remove(watcher)
            if not watchers:
                self._watchers.pop(path, None)

        return cancel

    def clear(self) -> None:
        self._watchers.clear()

    def report(self, event: Event, changed: str) -> None:
        """Call the watchers of `changed` and of the nodes above it.

        A watcher's exception is logged: it must not fail the write.
        """
        path = changed
        while True:
            for watcher in tuple(self._watchers.get(path, ())):
                try:
                    watcher(event, changed)
                except Exception:
                    log.exception("a watcher of %s failed on %s", path, changed)
            if path == ROOT:
                break
            path = parent_of(path)
