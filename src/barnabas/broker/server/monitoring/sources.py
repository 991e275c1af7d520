"""The parts of a broker from which the metrics read their values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from barnabas.broker.controller import Controller
from barnabas.broker.coordinator import GroupCoordinator, ShareCoordinator, TransactionCoordinator
from barnabas.broker.interbroker import BrokerClient
from barnabas.broker.logs.cleaner import LogCleaner
from barnabas.broker.logs.manager import LogManager
from barnabas.broker.metadata.store import SessionState
from barnabas.broker.replication.isr_changes import IsrChanges
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.serving_time import ServingTime
from barnabas.broker.server.monitoring.loop_watch import LoopWatch
from barnabas.broker.server.network.listener import Connections
from barnabas.broker.server.requests.api import Served
from barnabas.broker.server.telemetry.clients import TelemetryClients
from barnabas.broker.sharing.sessions import ShareSessions
from barnabas.broker.sharing.share_partitions import SharePartitions
from barnabas.broker.view import BrokerView


@dataclass(slots=True)
class SessionHistory:
    """The state of the session with the metadata store, and how often it changed to each state."""

    state: SessionState = SessionState.CONNECTED
    #: number of changes to each state since the start
    changes: Counter[SessionState] = field(default_factory=Counter)

    def note(self, state: SessionState) -> None:
        self.state = state
        self.changes[state] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The parts of a broker that provide the values of its metrics.

    Only the broker's event loop may use them.
    """

    view: BrokerView
    #: 1 starting, 3 running, 6 shutting down, as Kafka numbers it
    broker_state: Callable[[], int]
    session: SessionHistory
    served: Mapping[int, Served]
    connections: Connections
    serving_time: ServingTime
    loop_watch: LoopWatch
    replicas: ReplicaManager
    isr_changes: IsrChanges
    logs: LogManager
    cleaner: LogCleaner[Partition]
    controller: Controller
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    shares: ShareCoordinator
    share_partitions: SharePartitions
    share_sessions: ShareSessions
    peers: BrokerClient
    telemetry: TelemetryClients
