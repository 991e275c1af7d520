"""A session with a metadata store: its state, its listeners, and the watchers of its nodes."""

from __future__ import annotations

from barnabas.base.text import logger_of
from barnabas.broker.metadata.store import Cancel, Event, SessionListener, SessionState, Watcher
from barnabas.broker.metadata.tree import ROOT, parent_of

log = logger_of(__name__)

#: a session certainly lives for this part of its timeout after the store's last response. A client drops its
#: connection after two thirds of the timeout without a response, and the rest is the time in which that
#: response travelled
CERTAIN_PART = 0.75

#: states that nothing follows
FINAL = frozenset((SessionState.FAILED, SessionState.CLOSED))

#: a broker watches the root alone, a server of sessions watches some paths
_FEW = 4


class StoreSession:
    """The state of a store's session, and its listeners. Only one event loop may use it."""

    def __init__(self, state: SessionState) -> None:
        self.state = state
        self._listeners: list[SessionListener] = []

    def on_state(self, listener: SessionListener) -> Cancel:
        """Call `listener` at each change of the state, until the returned function is called."""
        self._listeners.append(listener)

        def cancel() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return cancel

    def enter(self, state: SessionState) -> None:
        """Change the state and call the listeners.

        Do nothing if the session is in this state already, or if its present state is final (FAILED, CLOSED).

        If a listener raises, the exception is logged, so that the other listeners are still called.
        """
        if state is self.state or self.state in FINAL:
            return
        self.state = state
        for listener in list(self._listeners):
            if self.state is not state:
                return  # a listener closed the store: all have been told of that
            try:
                listener(state)
            except Exception:
                log.exception("a listener of the metadata session failed on %s", state.value)


class Watches:
    """Watchers by path. A watcher also receives the changes of all nodes below its path."""

    def __init__(self) -> None:
        self._watchers: dict[str, list[Watcher]] = {}

    @property
    def is_empty(self) -> bool:
        return not self._watchers

    def add(self, path: str, watcher: Watcher) -> Cancel:
        """Call `watcher` for each change at or below `path`, until the returned function is called."""
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

        If a watcher raises, the exception is logged, so that the write does not fail.
        """

        for path in self._paths_to(changed):
            for watcher in tuple(self._watchers.get(path, ())):
                try:
                    watcher(event, changed)
                except Exception:
                    log.exception("a watcher of %s failed on %s", path, changed)

    def _paths_to(self, changed: str) -> list[str]:
        """Return the path `changed` and the paths above it, the nearest first.

        The result can leave out paths without watchers.
        """
        if len(self._watchers) <= _FEW:
            paths = [path for path in self._watchers if _is_at_or_above(path, changed)]
            paths.sort(key=len, reverse=True)
            return paths
        paths = [changed]
        while paths[-1] != ROOT:
            paths.append(parent_of(paths[-1]))
        return paths


def _is_at_or_above(path: str, changed: str) -> bool:
    return path in (changed, ROOT) or (changed.startswith(path) and changed[len(path)] == "/")
