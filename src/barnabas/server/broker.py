"""The composition root: one broker's parts, put together, started and stopped in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Awaitable, Callable

from barnabas import __version__
from barnabas.config import BrokerConfig
from barnabas.config.group import check_groups
from barnabas.controller import Controller
from barnabas.coordinator import GroupCoordinator, ProducerIds, TransactionCoordinator
from barnabas.environment.clock import Clock
from barnabas.environment.environment import Environment
from barnabas.environment.randomness import new_uuid
from barnabas.errors import BarnabasError, ConfigError
from barnabas.logs.cleaner import LogCleaner
from barnabas.logs.group_commit import GroupCommit
from barnabas.logs.jobs import stop_all, upkeep
from barnabas.logs.log_dirs import check_folders, check_paths
from barnabas.logs.manager import LogManager, files_for_connections
from barnabas.metadata import ClusterImage, ImageDelta, MetadataLoader, open_store
from barnabas.metadata.configs import ConfigResolver
from barnabas.metadata.features import SUPPORTED, TRANSACTION_VERSION
from barnabas.metadata.image import BrokerEndpoint, BrokerImage, BrokerState
from barnabas.metadata.opening import check_store
from barnabas.metadata.store import SessionState
from barnabas.replication.internal_log import ReplicatedLog
from barnabas.replication.manager import ReplicaManager
from barnabas.replication.partition import Partition
from barnabas.server.fetching.sessions import FetchSessions
from barnabas.server.network.busy_polling import BusyPolling
from barnabas.server.network.endpoint import Endpoint, advertised_endpoints, bound_endpoints
from barnabas.server.network.listener import Connections, Listener
from barnabas.server.requests.dispatch import Dispatcher
from barnabas.server.requests.long_work import LongWork
from barnabas.server.serving import served_apis
from barnabas.server.transactions.guard import TransactionGuard
from barnabas.server.transactions.markers import MarkerAppender
from barnabas.text import logger_of
from barnabas.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

log = logger_of(__name__)

#: how long a stop waits for the cluster to hear of it
_ANNOUNCING_SECONDS = 1.0


class BrokerFailedError(BarnabasError):
    """The broker met what it cannot go on with: it would serve what the cluster has not decided."""


class Broker:
    """The parts of a broker. Owned by one event loop: nothing here is touched from another thread.

    `start` builds the parts from the bottom up and leaves nothing behind when it fails; `stop` takes down
    what was built, the other way round.
    """

    clock: Clock
    node_id: int
    #: the settings that hold now
    config: BrokerConfig
    configs: ConfigResolver
    #: the one writer of metadata: topics, settings, producer-id blocks
    controller: Controller
    logs: LogManager
    replicas: ReplicaManager
    cleaner: LogCleaner[Partition]
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    fetch_sessions: FetchSessions
    producer_ids: ProducerIds
    dispatcher: Dispatcher

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        *,
        busy_polling: BusyPolling | None = None,
    ) -> None:
        self.config = config
        self.clock = environment.clock
        self.node_id = config.node_id
        self.configs = ConfigResolver(config, config.node_id)
        self.long_work = LongWork(environment)
        self.connections = Connections(
            lambda: self.config, most=files_for_connections(environment.filesystem), busy_polling=busy_polling
        )
        self._environment = environment
        self._failed = asyncio.Event()
        self._failure = ""
        self._undo: list[Callable[[], Awaitable[None] | None]] = []
        #: where it listens, in the order of ``listeners``
        self.bound: list[Endpoint] = []
        #: what clients are told, in the same order
        self.advertised: list[Endpoint] = []

    @property
    def image(self) -> ClusterImage:
        """The latest cluster image: replaced whole, never changed."""
        return self._loader.image

    @property
    def cluster_id(self) -> str:
        return self.image.cluster_id

    @property
    def address(self) -> str:
        """``host:port`` of the first listener, as clients are told."""
        return self.advertised[0].address

    async def start(self) -> None:
        """Serve clients when this returns.

        Raises:
            ConfigError: a setting cannot be met.
            StoreError: the metadata store cannot be used.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def failed(self) -> None:
        """Wait until the broker cannot go on and has to be stopped, which it may never come to.

        Raises:
            BrokerFailedError: that has happened; the text says why.
        """
        await self._failed.wait()
        raise BrokerFailedError(self._failure)

    async def stop(self) -> None:
        """Stop serving, then put everything away; what was never started is passed over."""
        while self._undo:
            try:
                pending = self._undo.pop()()
                if pending is not None:
                    await pending
            except Exception as error:
                log.error(
                    "a part of the broker could not be stopped: %s: %s",
                    type(error).__name__,
                    error,
                    exc_info=log.isEnabledFor(logging.DEBUG),
                )

    async def _start(self) -> None:
        check_groups(self.config)
        environment = self._environment
        check_paths(self.config, environment.filesystem)
        check_store(self.config)
        listeners = self._bind()
        # For what blocks: fsyncs, checkpoints, deletions.
        self._disk = environment.blocking.pool("disk", 2)
        self._undo.append(self._disk.close)
        await self._disk.run(check_folders, self.config, environment.filesystem)
        log.info("barnabas %s starts as broker %d", __version__, self.node_id)
        store = await open_store(self.config, environment)
        self._undo.append(store.close)
        store.on_state(self._on_session)
        self._loader = MetadataLoader(store, self._on_metadata_failure)
        self._undo.append(self._loader.stop)
        await self._loader.start()
        self._require_no_other()
        await self._open_logs()
        self.controller = Controller(
            store,
            self._loader,
            self.configs,
            self._registration(),
            self.clock,
            environment.random,
            lambda error: self._fail(f"it cannot register again: {error}"),
        )
        self._undo.append(self.controller.stop)
        await self.controller.start()
        self._require_no_other(before=self.controller.registration.epoch)
        self.producer_ids = ProducerIds(self.controller.producer_ids.allocate)
        self.fetch_sessions = FetchSessions(
            self.config.max_incremental_fetch_session_cache_slots, self.clock, environment.random
        )
        self._host_partitions()
        self._start_jobs()
        self._start_cleaner()
        self.dispatcher = self._dispatcher()
        self._undo.append(self.connections.close_all)
        for listener in listeners:
            self._undo.append(listener.unbind)  # no one may come in while the open connections are closed
            await listener.start(self.dispatcher.serve)
        await self.controller.registration.update(state=BrokerState.RUNNING)
        self._undo.append(self._announce_stop)
        for bound, told in zip(self.bound, self.advertised, strict=True):
            log.info("listening on %s, advertised as %s", bound, told.address)

    def _require_no_other(self, before: int = sys.maxsize) -> None:
        """Refuse to join a cluster that another broker has begun: nothing would be replicated to this one.

        Args:
            before: of two brokers that start together, the one with the lower epoch stays.

        Raises:
            ConfigError: another broker is registered.
        """
        for other in sorted(self.image.brokers.values()):
            if other.id != self.node_id and other.epoch < before:
                where = f"{other.endpoints[0].host}:{other.endpoints[0].port}"
                raise ConfigError(
                    f"broker {other.id} ({where}) has begun the cluster at "
                    f"zookeeper.connect={self.config.zookeeper_connect}, and several brokers cannot form one "
                    "yet: name another chroot, as in zookeeper.connect=HOST:PORT/chroot"
                )

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.FAILED:
            self._fail("the metadata store cannot be used any more; the log says why")

    def _on_metadata_failure(self, error: Exception) -> None:
        self._fail(f"a change of the metadata could not be applied ({type(error).__name__}: {error})")

    def _fail(self, reason: str) -> None:
        if not self._failed.is_set():
            self._failure = reason
            self._failed.set()
            log.critical("broker %d has to stop: %s", self.node_id, reason)

    def _bind(self) -> list[Listener]:
        """Take the addresses first: a second broker is told before it has touched anything."""
        endpoints = bound_endpoints(self.config)
        self._advertise(endpoints)  # refuses what is wrong before anything is bound
        listeners = [Listener(e, self.connections, self._environment.network) for e in endpoints]
        for listener in listeners:
            self._undo.append(listener.unbind)
            listener.bind()
        self.bound = [listener.endpoint for listener in listeners]
        self.advertised = self._advertise(self.bound)
        return listeners

    def _advertise(self, bound: list[Endpoint]) -> list[Endpoint]:
        return advertised_endpoints(self.config, bound, self._environment.network.machine_name)

    def _registration(self) -> BrokerImage:
        endpoints = tuple(BrokerEndpoint(e.name, e.host, e.port) for e in self.advertised)
        return BrokerImage(
            self.node_id,
            endpoints,
            self.config.broker_rack,
            state=BrokerState.STARTING,
            features={name: (feature.lowest, feature.highest) for name, feature in SUPPORTED.items()},
            failed_log_dirs=tuple(self.logs.failed_directories),
            previous_epoch=self.logs.previous_epoch,
        )

    async def _announce_stop(self) -> None:
        with contextlib.suppress(TimeoutError):  # the store may be away: the end of the session tells it, too
            async with asyncio.timeout(_ANNOUNCING_SECONDS):
                await self.controller.registration.update(state=BrokerState.SHUTTING_DOWN)

    async def _open_logs(self) -> None:
        self.logs = LogManager(self.config, self._environment, self._disk, self._take_offline)
        self._undo.append(self._close_logs)
        began = self.clock.monotonic()
        self.logs.open(self.cluster_id)
        image = self.image
        await self.logs.load(
            image.hosted_by(self.config.node_id),
            lambda topic: self.configs.topic_config(image, topic),
            image.deleted_topics,
        )
        for directory in self.logs.directories:
            log.info(
                "%s: opened %d partitions%s",
                directory.path,
                len(directory.logs),
                " after recovery, since the last stop was not clean"
                if directory.logs and not directory.was_clean
                else "",
            )
        log.info("opened all logs in %.2f s", self.clock.monotonic() - began)

    async def _close_logs(self) -> None:
        began = self.clock.monotonic()
        if hasattr(self, "controller"):
            self.logs.set_broker_epoch(self.controller.registration.epoch)
        await self.logs.stop()
        for directory in self.logs.directories:
            log.info(
                "%s: flushed and closed %d partitions; the stop is %s",
                directory.path,
                len(directory.logs),
                "marked as clean" if directory.closed_cleanly else "not clean: the next start recovers them",
            )
        log.info("closed all logs in %.2f s", self.clock.monotonic() - began)

    def _take_offline(self, log_dir: str) -> None:
        if hasattr(self, "controller"):
            self.controller.registration.announce(failed_log_dirs=tuple(self.logs.failed_directories))
        # Before partitions are hosted nobody waits for a write, and `_host_partitions` sees to the rest.
        if hasattr(self, "replicas"):
            self.replicas.take_offline(log_dir)

    def _host_partitions(self) -> None:
        self._group_commit = GroupCommit(self._disk)
        self._undo.append(self._group_commit.stop)
        self.replicas = ReplicaManager(
            self.node_id,
            self.logs,
            self.configs,
            on_flush_due=self._group_commit.add,
            acks_fsync=self.config.barnabas_acks_fsync,
        )
        self.groups = GroupCoordinator(
            lambda: self.config,
            self.clock,
            ReplicatedLog(GROUP_METADATA_TOPIC, self.replicas),
            partitions=lambda: self._partitions_of(
                GROUP_METADATA_TOPIC, self.config.offsets_topic_num_partitions
            ),
            settings=lambda group_id: self.configs.group_config(self.image, group_id),
            image=lambda: self.image,
            unique=lambda: str(new_uuid(self._environment.random)),
        )
        self._undo.append(self.groups.stop)
        self._markers = MarkerAppender(lambda: self.config, self.replicas, self.groups, self.clock)
        self.transactions = TransactionCoordinator(
            lambda: self.config,
            self.clock,
            ReplicatedLog(TRANSACTION_STATE_TOPIC, self.replicas),
            self._markers,
            partitions=lambda: self._partitions_of(
                TRANSACTION_STATE_TOPIC, self.config.transaction_state_log_num_partitions
            ),
            producer_ids=self.producer_ids.next,
            version=lambda: self.image.features.level(TRANSACTION_VERSION),
        )
        self._undo.append(self.transactions.stop)
        image = self.image
        self._follow(ImageDelta(ClusterImage(), image, topics=frozenset(image.topics), broker_configs=True))
        for directory in self.logs.directories:
            if directory.failure is not None:
                self.replicas.take_offline(directory.path)
        self._loader.subscribe(self._follow)
        self.groups.start()
        self.transactions.start()

    def _follow(self, delta: ImageDelta) -> None:
        """Do what the cluster has decided."""
        if delta.broker_configs:
            self.config = self.configs.broker_config(delta.after)
        self.replicas.apply(delta)
        self.groups.follow(self.node_id, delta)
        self.transactions.follow(self.node_id, delta)

    def _partitions_of(self, internal_topic: str, planned: int) -> int:
        topic = self.image.topics.get(internal_topic)
        return len(topic.partitions) if topic else planned

    def _dispatcher(self) -> Dispatcher:
        self._undo.append(self.long_work.stop)
        served = served_apis(
            node_id=self.node_id,
            config=lambda: self.config,
            image=lambda: self.image,
            clock=self.clock,
            long_work=self.long_work,
            configs=self.configs,
            controller=self.controller,
            logs=self.logs,
            replicas=self.replicas,
            groups=self.groups,
            transactions=self.transactions,
            guard=TransactionGuard(lambda: self.config, self.transactions),
            markers=self._markers,
            producer_ids=self.producer_ids,
            fetch_sessions=self.fetch_sessions,
        )
        return Dispatcher(served, self.long_work)

    def _start_jobs(self) -> None:
        jobs = upkeep(lambda: self.config, self.logs)
        self._undo.append(lambda: stop_all(jobs))
        for job in jobs:
            job.start()

    def _start_cleaner(self) -> None:
        self.cleaner = LogCleaner(
            lambda: self.config, self.replicas, self.logs, self._environment, self._group_commit.add
        )
        self._undo.append(self.cleaner.stop)
        self.cleaner.start()
