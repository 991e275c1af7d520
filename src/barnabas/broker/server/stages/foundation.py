"""The parts of a broker that exist before it starts."""

from __future__ import annotations

from barnabas.base.environment.environment import Environment
from barnabas.broker.config import BrokerConfig
from barnabas.broker.coordinator.pattern_search import PatternSearch
from barnabas.broker.logs.cold_reads import ColdReads
from barnabas.broker.logs.manager import files_for_connections
from barnabas.broker.quotas import ConnectionRates, Windows
from barnabas.broker.server.failure import Failure
from barnabas.broker.server.monitoring.health import Health
from barnabas.broker.server.monitoring.sources import SessionHistory
from barnabas.broker.server.network.busy_polling import BusyPolling
from barnabas.broker.server.network.listener import Connections
from barnabas.broker.server.network.turns import Turns
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.telemetry.clients import TelemetryClients
from barnabas.broker.server.telemetry.subscriptions import Subscriptions
from barnabas.broker.view import MutableView


class Foundation:
    """Creates the parts that every stage uses. These parts have no files, sockets or tasks of their own.

    Args:
        config: settings with which the broker starts.
        environment: environment of the broker.
        busy_polling: polls for requests before the event loop sleeps; None to let it sleep at once.
    """

    def __init__(
        self, config: BrokerConfig, environment: Environment, busy_polling: BusyPolling | None
    ) -> None:
        clock, view = environment.clock, MutableView(config, environment.clock)
        self.environment = environment
        self.view = view
        self.session = SessionHistory()
        self.health = Health(view, self.session)
        self.failure = Failure(config.node_id, self.health)
        self.long_work = LongWork(environment)
        self.search = PatternSearch(environment.blocking)
        self.cold_reads = ColdReads(environment.blocking)
        self.telemetry = TelemetryClients(Subscriptions(view), clock, environment.random)
        self.connections = Connections(
            view,
            Turns(clock.monotonic),
            max_descriptors=files_for_connections(environment.filesystem),
            busy_polling=busy_polling,
            rates=ConnectionRates(
                clock.monotonic, Windows(config.quota_window_num, config.quota_window_size_seconds)
            ),
        )
