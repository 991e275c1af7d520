"""Decides whether a broker is ready to serve clients, and gives the reasons if it is not."""

from __future__ import annotations

from barnabas.broker.metadata.store import SessionState
from barnabas.broker.server.monitoring.sources import SessionHistory
from barnabas.broker.view import BrokerView

STARTING, RUNNING, SHUTTING_DOWN = 1, 3, 6


class Health:
    """The state of a broker between start and stop, for ``/readyz``.

    A broker that cannot reach its metadata store stays ready, because it still serves the partitions that it
    leads. If it were not ready, an outage of the store would make all brokers unusable for clients. A broker
    whose session the store has ended is not ready.

    Args:
        view: cluster image, which shows whether the controller has admitted this broker.
        session: state of the session with the metadata store.
    """

    def __init__(self, view: BrokerView, session: SessionHistory) -> None:
        self._view = view
        self._session = session
        #: state of the broker, with Kafka's number
        self.state = STARTING
        #: current step of the start
        self.step = "it has only begun to start"
        #: reason why the broker must stop; "" if there is none
        self.failure = ""

    def running(self) -> None:
        """Set the state to RUNNING, because the broker now serves clients."""
        self.state = RUNNING

    def reasons(self) -> list[str]:
        """Return the reasons why the broker is not ready; an empty list if it is ready."""
        found = [f"it has to stop: {self.failure}"] if self.failure else []
        if self.state == STARTING:
            found.append(f"it starts: {self.step}")
        elif self.state == SHUTTING_DOWN:
            found.append("it stops")
        elif not self._view.image.is_admitted(self._view.node_id):
            found.append("it is not registered in its cluster, or the controller has not admitted it yet")
        if self._session.state in (SessionState.LOST, SessionState.FAILED, SessionState.CLOSED):
            found.append(f"its session with the metadata store is {self._session.state.value}: it is fenced")
        return found
