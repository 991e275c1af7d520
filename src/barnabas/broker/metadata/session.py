"""The state of a session with a metadata store, and its listeners."""

from __future__ import annotations

from barnabas.base.text import logger_of
from barnabas.broker.metadata.store import Cancel, SessionListener, SessionState

log = logger_of(__name__)

#: a session surely lives for this part of its timeout after the store's last response: a client without
#: a response gives its connection up at two thirds, and the rest covers the way of that response
CERTAIN_PART = 0.75

#: states that nothing follows
FINAL = frozenset((SessionState.FAILED, SessionState.CLOSED))


class Session:
    """A store's session: its state and its listeners. Owned by one event loop."""

    def __init__(self, state: SessionState) -> None:
        self.state = state
        self._listeners: list[SessionListener] = []

    def on_state(self, listener: SessionListener) -> Cancel:
        """Call `listener` at each change of the state."""
        self._listeners.append(listener)

        def cancel() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return cancel

    def enter(self, state: SessionState) -> None:
        """Change the state and call the listeners, unless the state is the same or the last one is final.

        A listener's exception is logged, so that the other listeners still receive a lost session.
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
