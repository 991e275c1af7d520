"""The composition root: `Broker` opens its stages one after another, and closes them in the reverse order."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from barnabas import __version__
from barnabas.base.environment.clock import Clock
from barnabas.base.environment.environment import Environment
from barnabas.base.text import logger_of
from barnabas.broker.config import BrokerConfig
from barnabas.broker.config.group import check_groups
from barnabas.broker.controller import Controller
from barnabas.broker.coordinator import GroupCoordinator, TransactionCoordinator
from barnabas.broker.logs.log_dirs import check_paths
from barnabas.broker.logs.manager import LogManager
from barnabas.broker.metadata import ClusterImage
from barnabas.broker.metadata.bootstrap import NO_USERS, Users
from barnabas.broker.metadata.opening import check_store
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.server.failure import BrokerFailedError
from barnabas.broker.server.monitoring.monitor import Monitor
from barnabas.broker.server.network.busy_polling import BusyPolling
from barnabas.broker.server.network.endpoint import Endpoint
from barnabas.broker.server.network.listener import Connections
from barnabas.broker.server.requests.dispatch import Dispatcher
from barnabas.broker.server.stages.binding import Binding, open_binding
from barnabas.broker.server.stages.coordination import open_coordination
from barnabas.broker.server.stages.foundation import Foundation
from barnabas.broker.server.stages.listeners import Stages, open_listeners
from barnabas.broker.server.stages.logs import open_logs
from barnabas.broker.server.stages.membership import open_membership
from barnabas.broker.server.stages.metadata import open_metadata
from barnabas.broker.server.stages.replication import open_replication
from barnabas.broker.server.stages.upkeep import open_upkeep

__all__ = ["Broker", "BrokerFailedError"]

log = logger_of(__name__)


class Broker:
    """A broker of a cluster. Only the thread of its event loop may use it.

    The attributes `controller`, `logs`, `replicas`, `groups`, `transactions` and `dispatcher` do not exist
    before `start` sets them.

    Args:
        config: initial settings.
        environment: clock, files, network and threads of the broker.
        busy_polling: polls for requests before the event loop sleeps (ADR 7).
        users: users to create if the cluster does not have them.
    """

    controller: Controller
    logs: LogManager
    replicas: ReplicaManager
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    dispatcher: Dispatcher
    _binding: Binding

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        *,
        busy_polling: BusyPolling | None = None,
        users: Users = NO_USERS,
    ) -> None:
        self._foundation = Foundation(config, environment, busy_polling)
        self._first_users = users
        self._open = AsyncExitStack()

    @property
    def node_id(self) -> int:
        return self._foundation.view.node_id

    @property
    def clock(self) -> Clock:
        return self._foundation.view.clock

    @property
    def config(self) -> BrokerConfig:
        """The effective settings of this broker."""
        return self._foundation.view.config

    @property
    def image(self) -> ClusterImage:
        """The latest cluster image."""
        return self._foundation.view.image

    @property
    def cluster_id(self) -> str:
        return self.image.cluster_id

    @property
    def connections(self) -> Connections:
        """Open connections from clients and other brokers."""
        return self._foundation.connections

    @property
    def bound(self) -> list[Endpoint]:
        """Bound addresses of the listeners, in the order of ``listeners``."""
        return self._binding.bound

    @property
    def advertised(self) -> list[Endpoint]:
        """Addresses that the broker advertises to clients, in the order of ``listeners``."""
        return self._binding.advertised

    @property
    def monitor(self) -> Monitor | None:
        """Server of metrics and health over HTTP; None without ``barnabas.metrics.listener``."""
        return self._binding.monitor

    @property
    def address(self) -> str:
        """Advertised ``host:port`` of the first listener."""
        return self.advertised[0].address

    async def start(self) -> None:
        """Start the broker, and return when the broker serves clients.

        If the start fails, close all stages that are already open.

        Raises:
            ConfigError: a setting is invalid, or the broker cannot do what the setting requires.
            StoreError: the metadata store cannot be used.
            BrokerFailedError: a part that the broker needs has failed.
        """
        async with AsyncExitStack() as opening:
            await self._open_stages(opening)
            self._open = opening.pop_all()
        for bound, advertised in zip(self.bound, self.advertised, strict=True):
            log.info("listening on %s, advertised as %s", bound, advertised.address)

    async def _open_stages(self, opening: AsyncExitStack) -> None:
        foundation, config = self._foundation, self.config
        check_groups(config)
        check_paths(config, foundation.environment.filesystem)
        check_store(config)
        enter = opening.enter_async_context
        binding = self._binding = await enter(open_binding(foundation))
        log.info("barnabas %s starts as broker %d", __version__, self.node_id)
        metadata = await enter(open_metadata(foundation, binding, self._first_users))
        logs = await enter(open_logs(foundation, binding, metadata))
        self.logs = logs.manager
        membership = await enter(open_membership(foundation, binding, metadata, logs))
        self.controller = membership.controller
        replication = await enter(open_replication(foundation, metadata, logs, membership))
        self.replicas = replication.replicas
        coordination = await enter(open_coordination(foundation, metadata, logs, membership, replication))
        self.groups, self.transactions = coordination.groups, coordination.transactions
        upkeep = await enter(
            open_upkeep(foundation, binding, metadata, logs, membership, replication, coordination)
        )
        self.dispatcher = await enter(
            open_listeners(
                Stages(foundation, binding, metadata, logs, membership, replication, coordination, upkeep)
            )
        )

    async def stop(self) -> None:
        """Close all stages, the last one first. A second call does nothing."""
        await self._open.aclose()

    async def failed(self) -> None:
        """Wait until a failure requires the broker to stop. Without a failure this never returns.

        Raises:
            BrokerFailedError: a part that the broker needs has failed; the text has the reason.
        """
        await self._foundation.failure.failed()

    def handle_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error of a callback, timer or task of the event loop.

        If the broker cannot work without the task (`start_task` with `is_vital`), also stop the broker. Set
        this as the exception handler of the event loop, if the loop runs only this broker.
        """
        self._foundation.failure.handle_loop_error(loop, context)

    def reload(self) -> None:
        """Start to read the TLS keys and certificates of the listeners now. Return before they are read.

        If no listener has TLS keys, do nothing.
        """
        if self._binding.tls_keys is not None:
            log.info("reading the key of the listeners again")
            self._binding.tls_keys.check_now(self._binding.disk)
