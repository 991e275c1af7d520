"""The composition root: one broker's parts, put together, started and stopped in order."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import partial

from barnabas import __version__
from barnabas.base.environment.clock import Clock
from barnabas.base.environment.environment import Environment
from barnabas.base.environment.randomness import new_uuid
from barnabas.base.errors import BarnabasError, ConfigError, ErrorCode, KafkaError
from barnabas.base.text import logger_of
from barnabas.base.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, BrokerId, TopicPartition
from barnabas.broker.config import BrokerConfig
from barnabas.broker.config.group import check_groups
from barnabas.broker.controller import Controller
from barnabas.broker.controller.deletion_notes import DeletionNotes
from barnabas.broker.coordinator import GroupCoordinator, ProducerIds, TransactionCoordinator
from barnabas.broker.coordinator.pattern_search import PatternSearch
from barnabas.broker.interbroker import BrokerClient
from barnabas.broker.logins.delegation_tokens import TokenKeys, TokenLogins
from barnabas.broker.logins.sasl import Sasl
from barnabas.broker.logs.cleaner import LogCleaner
from barnabas.broker.logs.cold_reads import ColdReads
from barnabas.broker.logs.group_commit import GroupCommit
from barnabas.broker.logs.jobs import Job, stop_all, upkeep
from barnabas.broker.logs.log_dirs import check_folders, check_paths
from barnabas.broker.logs.manager import LogManager, files_for_connections
from barnabas.broker.logs.moves import LogMoves
from barnabas.broker.metadata import ClusterImage, ImageDelta, MetadataLoader, open_store
from barnabas.broker.metadata.backup_keeper import BackupKeeper
from barnabas.broker.metadata.features import SUPPORTED, TRANSACTION_VERSION
from barnabas.broker.metadata.first_users import NO_USERS, Users, add_missing_users, credentials
from barnabas.broker.metadata.image import BrokerEndpoint, BrokerImage, BrokerState
from barnabas.broker.metadata.login_secret import login_secret
from barnabas.broker.metadata.opening import check_store
from barnabas.broker.metadata.store import MetadataStore, SessionState
from barnabas.broker.quotas import ClientQuotas, ConnectionRates, Windows
from barnabas.broker.replication.following import Following
from barnabas.broker.replication.internal_log import ReplicatedLog
from barnabas.broker.replication.isr_changes import IsrChanges
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.serving_time import ServingTime
from barnabas.broker.replication.throttles import ReplicationThrottles
from barnabas.broker.server.auditing.trail import AuditTrail
from barnabas.broker.server.authorization import open_authorizer, require_own_access
from barnabas.broker.server.fetching.read_index import ReadIndex
from barnabas.broker.server.fetching.sessions import FetchSessions
from barnabas.broker.server.forwarding import Forwarding
from barnabas.broker.server.isolation import IsolationWatch
from barnabas.broker.server.monitoring.health import SHUTTING_DOWN, Health
from barnabas.broker.server.monitoring.loop_watch import LoopWatch
from barnabas.broker.server.monitoring.monitor import Monitor
from barnabas.broker.server.monitoring.sources import SessionHistory, Sources
from barnabas.broker.server.network.busy_polling import BusyPolling
from barnabas.broker.server.network.endpoint import (
    Endpoint,
    advertised_endpoints,
    bound_endpoints,
    broker_login,
    check_protection,
    has_broker_login,
    inter_broker_listener,
    login_config,
    users_of_listener,
)
from barnabas.broker.server.network.kerberos_keys import open_kerberos, read_kerberos
from barnabas.broker.server.network.listener import Connections, Listener
from barnabas.broker.server.network.login import Logins
from barnabas.broker.server.network.session import Serve
from barnabas.broker.server.network.tls_keys import CHECK_MS, ListenerKeys
from barnabas.broker.server.network.token_keys import open_tokens
from barnabas.broker.server.peers import forget_gone, open_peers
from barnabas.broker.server.requests.context import NoConnection, RequestContext
from barnabas.broker.server.requests.dispatch import Dispatcher
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.requests.usage import Metering
from barnabas.broker.server.serving import served_apis
from barnabas.broker.server.telemetry.clients import TelemetryClients
from barnabas.broker.server.telemetry.subscriptions import Subscriptions
from barnabas.broker.server.to_controller import ToController, allocate_producer_ids
from barnabas.broker.server.transactions.coordinators import TransactionCoordinators
from barnabas.broker.server.transactions.guard import TransactionGuard
from barnabas.broker.server.transactions.marker_sender import MarkerSender
from barnabas.broker.server.transactions.markers import MarkerAppender
from barnabas.broker.server.waiting import first
from barnabas.broker.view import MutableView
from barnabas.kafka.protocol.framing import RequestHeader
from barnabas.kafka.protocol.schema import Request, Response
from barnabas.kafka.security.principal import ANONYMOUS, Principal
from barnabas.kafka.security.scram import SALT_BYTES, can_log_in

log = logger_of(__name__)

#: how long a stop waits for the controller to move leaders away
_ANNOUNCING_SECONDS = 1.0


#: how long the controller waits for what it asks a broker
_ASKED_SECONDS = 5.0

#: an answer that must not be stale waits for as long as so many fetches take that wait for records themselves
_FETCHES_WAITED_FOR = 5


class BrokerFailedError(BarnabasError):
    """The broker has to stop: it could serve state that the cluster has not decided."""


class Broker:
    """The parts of a broker. Owned by one event loop: nothing here is touched from another thread.

    `start` builds the parts from the bottom up and leaves nothing behind when it fails; `stop` takes down
    what was built, the other way round. `users` are stored where the cluster does not have them yet.
    """

    clock: Clock
    node_id: int
    #: current settings, image and epoch; the parts read them from here
    view: MutableView
    #: the one writer of metadata: topics, settings, producer-id blocks
    controller: Controller
    #: the other brokers of the cluster
    peers: BrokerClient
    to_controller: ToController
    logs: LogManager
    replicas: ReplicaManager
    #: how fast replicas are copied that are to be copied slowly
    throttles: ReplicationThrottles
    #: how much of this broker clients may use
    quotas: ClientQuotas
    cleaner: LogCleaner[Partition]
    #: logs on their way to other log directories
    moves: LogMoves
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
        users: Users = NO_USERS,
    ) -> None:
        self.view = MutableView(config, environment.clock)
        self._first_users = users
        self.clock = environment.clock
        self.node_id = config.node_id
        self.long_work = LongWork(environment)
        self.search = PatternSearch(environment.blocking)
        self.telemetry = TelemetryClients(Subscriptions(lambda: self.image), self.clock, environment.random)
        self.cold_reads = ColdReads(environment.blocking)
        self.connections = Connections(
            lambda: self.config,
            most=files_for_connections(environment.filesystem),
            busy_polling=busy_polling,
            rates=ConnectionRates(
                environment.clock.monotonic,
                Windows(config.quota_window_num, config.quota_window_size_seconds),
            ),
        )
        self._environment = environment
        self._failed = asyncio.Event()
        self._failure = ""
        self._undo: list[Callable[[], Awaitable[None] | None]] = []
        #: while a listener speaks TLS
        self._tls_keys: ListenerKeys | None = None
        #: where it listens, in the order of ``listeners``
        self.bound: list[Endpoint] = []
        #: what clients are told, in the same order
        self.advertised: list[Endpoint] = []
        self._session = SessionHistory()
        self.health = Health(config.node_id, self._session)
        #: serves metrics, if the settings say so
        self.monitor: Monitor | None = None

    @property
    def config(self) -> BrokerConfig:
        """The effective settings of this broker."""
        return self.view.config

    @property
    def image(self) -> ClusterImage:
        """The latest cluster image: replaced whole, never changed."""
        return self.view.image

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
            BrokerFailedError: it became clear meanwhile that the broker cannot go on.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def failed(self) -> None:
        """Wait until the broker has to be stopped because of a failure; this may never happen.

        Raises:
            BrokerFailedError: that has happened; the text says why.
        """
        await self._failed.wait()
        raise BrokerFailedError(self._failure)

    def reload(self) -> None:
        """Read the key and the certificates of the listeners now, not at the next scheduled check."""
        if self._tls_keys is not None:
            log.info("reading the key of the listeners again")
            self._tls_keys.check_now(self._disk)

    async def stop(self) -> None:
        """Stop serving, then close all parts. Parts that were never started are skipped."""
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
        self._authorizer = open_authorizer(self.config, lambda: self.image.acls)
        self._trail = AuditTrail(self.config, environment)
        self._token_keys = _token_keys(self.config)
        self._undo.append(self._trail.close)
        listeners = self._bind()
        await self._open_tokens()
        await self._start_monitor()
        # For what blocks: fsyncs, checkpoints, deletions.
        self._disk = environment.blocking.pool("disk", 2)
        self._undo.append(self._disk.close)
        self._undo.append(self.cold_reads.stop)
        await self._disk.run(check_folders, self.config, environment.filesystem)
        log.info("barnabas %s starts as broker %d", __version__, self.node_id)
        store = await open_store(self.config, environment)
        self._undo.append(store.close)
        await add_missing_users(store, {**self._first_users, **await self._own_user()})
        store.on_state(self._on_session)
        self._session.note(store.state)
        self.health.step = "it reads the metadata"
        self._loader = MetadataLoader(store, self._on_metadata_failure)
        self.view.follow(self._loader)
        self._undo.append(self._loader.stop)
        await self._loader.start()
        if (unsupported := self.image.features.unsupported()) is not None:
            raise ConfigError(f"the cluster uses {unsupported}: start a later version of Barnabas")
        self._connect_peers()
        self.health.step = "it opens its logs"
        await self._open_logs()
        await self._keep_backup(store)
        self.health.step = "it registers in the cluster"
        self.controller = Controller(
            store,
            self._loader,
            self.view,
            self._registration(),
            environment.random,
            self._ask,
            lambda error: self._fail(f"it cannot register again: {error}"),
            self._token_keys,
            self._try_keys,
        )
        self._undo.append(self.controller.stop)
        await self.controller.start()
        await first(self.controller.enter(), self.failed())
        self.producer_ids = ProducerIds(self._allocate_producer_ids)
        self.fetch_sessions = FetchSessions(
            self.config.max_incremental_fetch_session_cache_slots, self.clock, environment.random
        )
        self._host_partitions()
        await self._renew_keys()
        notes = DeletionNotes(store, self._loader, self.node_id, self.logs.without)
        self._undo.append(notes.stop)
        self._loader.subscribe(notes.on_image)
        notes.on_image(ImageDelta(self.image, self.image))
        self._start_jobs()
        self._start_cleaner()
        self._start_moves()
        self.dispatcher = self._dispatcher()
        self._logins = Logins(
            lambda: self.config,
            Sasl(
                lambda: self.image.user_configs,
                environment.random,
                await self._login_secret(store, listeners),
                self._tokens,
                self._token_logins(),
                lambda listener: users_of_listener(self.config, listener),
                open_kerberos(self.config, self.bound),
            ),
            self.dispatcher.serve,
            self.clock.now_ms,
            environment.blocking,
            self._trail,
        )
        self._undo.append(self._logins.stop)
        self.to_controller.serve_with(self._serve_self)
        self._undo.append(self.connections.end)
        for listener in listeners:
            self._undo.append(listener.unbind)  # no one may come in while the open connections are closed
            login = partial(self._begin_login, listener.endpoint.name)
            await listener.start(login if listener.endpoint.has_sasl else self._serve_all)
        self._watch_isolation(store)
        self._undo.append(self._announce_stop)
        if self.monitor is not None:
            self.monitor.begin(self._sources())
        self.health.running(lambda: self.image)
        for bound, told in zip(self.bound, self.advertised, strict=True):
            log.info("listening on %s, advertised as %s", bound, told.address)

    def _watch_isolation(self, store: MetadataStore) -> None:
        watch = IsolationWatch(
            self.node_id,
            lambda: self.image,
            lambda: self._loader.is_certain,
            store.session_timeout,
            lambda broker, request, timeout: self.peers.channel(broker, "isolation").send(
                request, timeout_s=timeout
            ),
            self.replicas,
            self.fetch_sessions,
            self.controller.note_isolation,
        )
        self._undo.append(watch.stop)
        watch.start()

    async def _renew_keys(self) -> None:
        """Take over the keys that are set for this broker in the metadata, now and whenever they change."""
        keys = self._tls_keys
        if keys is None:
            return
        await keys.check(self._disk, is_start=True)

        def follow(delta: ImageDelta) -> None:
            if delta.broker_configs:
                keys.check_now(self._disk)

        self._loader.subscribe(follow)

    async def _try_keys(self, config: BrokerConfig) -> None:
        """Raises ConfigError when the listeners could not use the keys that `config` names."""
        if self._tls_keys is not None:
            await self._tls_keys.try_out(config, self._disk)
        await self._disk.run(read_kerberos, config, self.bound)

    def _token_logins(self) -> TokenLogins | None:
        keys = self._token_keys
        if keys is None:
            return None
        return TokenLogins(keys, lambda: self.image.delegation_tokens, self.clock.now_ms)

    def _begin_login(self, listener: str) -> Serve:
        return self._logins.begin(listener).serve

    def _serve_all(self) -> Serve:
        return self.dispatcher.serve

    def _connect_peers(self) -> None:
        listener = inter_broker_listener(self.config, self.bound)
        self._require_own_access(listener)
        config = login_config(self.config, listener.name)
        self.peers = open_peers(config, self._environment, listener, lambda: self.image, self.long_work)
        self._undo.append(self.peers.close)
        if self._tls_keys is not None and self.peers.tls is not None:
            self._tls_keys.of(listener.name).shown_by(self.peers.tls)
        self.to_controller = ToController(
            self.node_id,
            lambda: self.image,
            self.peers,
            request_timeout=self.config.request_timeout_ms / 1000,
        )
        self._own_connection = NoConnection(listener.name)
        self._forwarding = Forwarding(
            self.node_id,
            self.to_controller,
            self._loader,
            self._own_connection,
            lambda: self.config.request_timeout_ms,
        )
        self._loader.subscribe(self._forwarding.follow)

    async def _login_secret(self, store: MetadataStore, listeners: Sequence[Listener]) -> bytes:
        random = self._environment.random
        if any(listener.endpoint.has_sasl for listener in listeners):
            return await login_secret(store, random)
        return random.randbytes(32)  # nobody logs in

    async def _own_user(self) -> Users:
        """The user as whom brokers log in to each other: before they do, nobody could make it."""
        listener = inter_broker_listener(self.config, self.bound)
        config = login_config(self.config, listener.name)
        if not listener.has_sasl or not has_broker_login(config):
            return NO_USERS
        user, password = broker_login(config)
        if config.sasl_mechanism_inter_broker_protocol == "PLAIN" and user in users_of_listener(
            self.config, listener.name
        ):
            return NO_USERS  # its password is in the settings, as those of the listener's other users are
        salt = self._environment.random.randbytes(SALT_BYTES)
        return {user: await self.long_work.run(credentials, password, salt)}

    def _require_own_access(self, listener: Endpoint) -> None:
        config = login_config(self.config, listener.name)
        if config.zookeeper_connect is not None or has_broker_login(config):
            user = Principal(broker_login(config)[0]) if listener.has_sasl else ANONYMOUS
            require_own_access(self._authorizer, user, listener.host)

    async def _allocate_producer_ids(self) -> range:
        epoch = self.controller.registration.epoch
        try:
            return await allocate_producer_ids(self.to_controller, self.node_id, epoch)
        except KafkaError as error:
            if error.code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
                self._note_stale_epoch(epoch)
            raise

    async def _serve_self(self, request: Request) -> Response:
        header = RequestHeader(request.api_key, request.versions[1], 0, f"broker-{self.node_id}")
        return await self.dispatcher.answer(RequestContext(header, self._own_connection), request)

    async def _ask(self, broker_id: BrokerId, request: Request) -> Response:
        """The response of a broker, which may be this one, to what the controller asks it."""
        if broker_id != self.node_id:
            response: Response = await self.peers.channel(broker_id, "control").send(
                request, timeout_s=_ASKED_SECONDS
            )
            return response
        if not hasattr(self, "dispatcher"):
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "this broker is starting")
        return await self._serve_self(request)

    async def _start_monitor(self) -> None:
        """From here on it can be seen how the start goes on."""
        listener = self.config.barnabas_metrics_listener
        if listener is not None:
            self.monitor = Monitor(listener, self._environment, self.health, self.long_work)
            self._undo.append(self.monitor.stop)
            await self.monitor.start()

    def _sources(self) -> Sources:
        watch = LoopWatch()
        self._undo.append(watch.stop)
        watch.start()
        return Sources(
            node_id=self.node_id,
            clock=self.clock,
            config=lambda: self.config,
            image=lambda: self.image,
            broker_state=lambda: self.health.state,
            session=self._session,
            served=self._served,
            connections=self.connections,
            serving_time=self._serving_time,
            loop_watch=watch,
            replicas=self.replicas,
            isr_changes=self._isr_changes,
            logs=self.logs,
            cleaner=self.cleaner,
            controller=self.controller,
            groups=self.groups,
            transactions=self.transactions,
            peers=self.peers,
            telemetry=self.telemetry,
        )

    def _on_session(self, state: SessionState) -> None:
        self._session.note(state)
        if state is SessionState.FAILED:
            self._fail("the metadata store has become unusable; the log says why")
        elif state is SessionState.LOST:
            self._end_leadership("the metadata store has ended the session")

    def _note_stale_epoch(self, epoch: int) -> None:
        """The controller says that a registration of this broker counts no more."""
        if epoch == self.controller.registration.epoch and not self.controller.registration.is_given_up:
            self._end_leadership("the controller says that this broker's registration has ended")
            self.controller.register_anew()

    def _end_leadership(self, why: str) -> None:
        """Others may have been elected since: what is left to say, they say."""
        if hasattr(self, "transactions"):
            self.groups.resign_all()
            self.transactions.resign_all()
        if hasattr(self, "replicas"):
            log.warning("%s: this broker leads no partitions until it has registered again", why)
            self.replicas.resign_all()

    def _end_coordination(self, partition: Partition) -> None:
        """A partition is led here no more, whatever the image says: so it is coordinated no more either."""
        topic, number = partition.topic_partition
        if topic == GROUP_METADATA_TOPIC and hasattr(self, "groups"):
            self.groups.resign(number)
        elif topic == TRANSACTION_STATE_TOPIC and hasattr(self, "transactions"):
            self.transactions.resign(number)

    def _on_metadata_failure(self, error: Exception) -> None:
        self._fail(f"a change of the metadata could not be applied ({type(error).__name__}: {error})")

    def _fail(self, reason: str) -> None:
        if not self._failed.is_set():
            self._failure = self.health.failure = reason
            self._failed.set()
            log.critical("broker %d has to stop: %s", self.node_id, reason)

    def _bind(self) -> list[Listener]:
        """Take the addresses first: a second broker is told before it has touched anything."""
        endpoints = bound_endpoints(self.config)
        check_protection(self.config, endpoints)
        inter_broker_listener(self.config, endpoints)
        self._advertise(endpoints)  # refuses what is wrong before anything is bound
        if any(endpoint.has_tls for endpoint in endpoints):
            names = [endpoint.name for endpoint in endpoints if endpoint.has_tls]
            self._tls_keys = ListenerKeys(lambda: self.config, self.clock, names)
        listeners = [
            Listener(
                endpoint,
                self.connections,
                self._environment.network,
                self._tls_keys.of(endpoint.name).context if self._tls_keys and endpoint.has_tls else None,
            )
            for endpoint in endpoints
        ]
        if len(endpoints) > 1:
            self.connections.protected = inter_broker_listener(self.config, endpoints).name
        for listener in listeners:
            self._undo.append(listener.unbind)
            listener.bind()
        self.bound = [listener.endpoint for listener in listeners]
        self.advertised = self._advertise(self.bound)
        return listeners

    async def _open_tokens(self) -> None:
        self._tokens = await open_tokens(self.config, self.bound, self._environment, self._undo.append)

    def _advertise(self, bound: list[Endpoint]) -> list[Endpoint]:
        return advertised_endpoints(self.config, bound, self._environment.network.machine_name)

    def _registration(self) -> BrokerImage:
        endpoints = tuple(BrokerEndpoint(e.name, e.host, e.port, e.protocol) for e in self.advertised)
        return BrokerImage(
            self.node_id,
            endpoints,
            self.config.broker_rack,
            state=BrokerState.STARTING,
            features={name: (feature.lowest, feature.highest) for name, feature in SUPPORTED.items()},
            failed_log_dirs=tuple(self.logs.failed_directories),
            previous_epoch=self.logs.previous_epoch,
            incomplete_replicas=self.logs.incomplete.registered,
        )

    async def _announce_stop(self) -> None:
        self.health.state = SHUTTING_DOWN
        config = self.config
        patience = config.controlled_shutdown_max_retries * config.controlled_shutdown_retry_backoff_ms / 1000
        await self.controller.leave(patience if config.controlled_shutdown_enable else _ANNOUNCING_SECONDS)

    async def _open_logs(self) -> None:
        self.logs = LogManager(
            self.config,
            self._environment,
            self._disk,
            self._take_offline,
            is_clustered=self._is_clustered,
        )
        self.logs.incomplete.on_change = self._announce_incomplete
        self._undo.append(self._close_logs)
        began = self.clock.monotonic()
        self.logs.open(self.cluster_id)
        image = self.image
        await self.logs.load(
            image.hosted_by(self.config.node_id),
            lambda topic: self.view.configs.topic_config(image, topic),
            lambda partition, topic_id: image.is_deleted_from(self.node_id, partition, topic_id),
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

    @property
    def _is_clustered(self) -> bool:
        """Whether the metadata is that of a cluster, not of this broker alone."""
        return self.config.zookeeper_connect is not None or self._environment.open_store is not None

    def _announce_incomplete(self) -> None:
        if hasattr(self, "controller"):
            self.controller.registration.announce(incomplete_replicas=self.logs.incomplete.registered)

    async def _keep_backup(self, store: MetadataStore) -> None:
        """A lone broker's own store has two copies already."""
        if not self._is_clustered:
            return
        keeper = BackupKeeper(
            store,
            self.cluster_id,
            lambda: [each.path for each in self.logs.directories if each.failure is None],
            self._environment.filesystem,
            self._disk,
            self.clock,
        )
        self._undo.append(keeper.stop)
        await keeper.start()

    async def _close_logs(self) -> None:
        began = self.clock.monotonic()
        if hasattr(self, "controller"):
            self.logs.set_broker_epoch(self.controller.registration.clean_epoch)
        await self._loader.stop()  # what it tells would change logs that are being closed
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
        self.throttles = ReplicationThrottles(self.node_id, self.view.configs, self.clock)
        self.quotas = ClientQuotas(
            self.clock.monotonic,
            Windows(self.config.quota_window_num, self.config.quota_window_size_seconds),
            Windows(
                self.config.controller_quota_window_num, self.config.controller_quota_window_size_seconds
            ),
        )
        self._group_commit = GroupCommit(self._disk)
        self._undo.append(self._group_commit.stop)
        self.following = Following(
            self.node_id,
            lambda: self.controller.registration.epoch,
            self.peers,
            self.logs,
            lambda: self.config,
            self.throttles.follower,
        )
        self._undo.append(self.following.stop)
        isr_changes = self._isr_changes = IsrChanges(
            self.node_id,
            lambda: self.controller.registration.epoch,
            self.to_controller.send,
            self._note_stale_epoch,
        )
        self._undo.append(isr_changes.stop)
        serving_time = self._serving_time = ServingTime(
            lambda: self.config.replica_lag_time_max_ms / 2000, lambda: self.replicas.check_in_sync()
        )
        self._undo.append(serving_time.stop)
        self.replicas = ReplicaManager(
            self.node_id,
            self.logs,
            self.view.configs,
            on_flush_due=self._group_commit.add,
            on_change=self.following.partition_changed,
            acks_fsync=self.config.barnabas_acks_fsync,
            on_isr_change_due=isr_changes.add,
            on_leadership_end=self._end_coordination,
            now=serving_time.now,
            max_lag=lambda: self.config.replica_lag_time_max_ms / 1000,
        )
        serving_time.start()
        assigning = self._environment.blocking.pool("group assignments", 1)
        self._undo.append(assigning.abandon)
        self.groups = GroupCoordinator(
            lambda: self.config,
            self.clock,
            ReplicatedLog(GROUP_METADATA_TOPIC, self.replicas, self.cold_reads),
            partitions=lambda: self._partitions_of(
                GROUP_METADATA_TOPIC, self.config.offsets_topic_num_partitions
            ),
            settings=self.view.group_config,
            image=lambda: self.image,
            unique=lambda: str(new_uuid(self._environment.random)),
            search=self.search,
            assigning=assigning,
        )
        self._undo.append(self.groups.stop)
        self._markers = MarkerAppender(lambda: self.config, self.replicas, self.groups, self.clock)
        self.transactions = TransactionCoordinator(
            lambda: self.config,
            self.clock,
            ReplicatedLog(TRANSACTION_STATE_TOPIC, self.replicas, self.cold_reads),
            MarkerSender(
                self.node_id,
                lambda: self.config,
                lambda: self.image,
                self._loader.synced,
                self._markers,
                self.peers,
            ),
            partitions=lambda: self._partitions_of(
                TRANSACTION_STATE_TOPIC, self.config.transaction_state_log_num_partitions
            ),
            producer_ids=self.producer_ids.next,
            version=lambda: self.image.features.level(TRANSACTION_VERSION),
        )
        self._undo.append(self.transactions.stop)
        image = self.image
        self._follow(
            ImageDelta(
                ClusterImage(),
                image,
                topics=frozenset(image.topics),
                topic_configs=frozenset(image.topic_configs),
                broker_configs=True,
                client_quotas=frozenset(image.client_quotas),
            )
        )
        for directory in self.logs.directories:
            if directory.failure is not None:
                self.replicas.take_offline(directory.path)
        self._loader.subscribe(self._follow)
        self.groups.start()
        self.transactions.start()

    def _follow(self, delta: ImageDelta) -> None:
        """Do what the cluster has decided."""
        forget_gone(self.peers, delta)
        self.throttles.apply(delta)
        for entity in delta.client_quotas:
            texts = delta.after.client_quotas.get(entity, {})
            self.quotas.set(entity, texts)
            self.connections.rates.set(entity, texts)
        # What is set for a user lies in one node: quotas are news, too, when credentials are.
        users = {e.user for e in delta.client_quotas if isinstance(e.user, str) and e.client_id is None}
        gone = {
            user
            for user in users
            if can_log_in(delta.before.user_configs.get(user, {}))
            and not can_log_in(delta.after.user_configs.get(user, {}))
        }
        if gone:
            self.connections.close_users(gone)
        self.replicas.apply(delta)
        self.groups.follow(self.node_id, delta)
        self.transactions.follow(self.node_id, delta)

    def _serve_opened(self, partitions: Collection[TopicPartition]) -> None:
        """Serve partitions whose logs are open only now, as if the image had just named them."""
        image, numbers = self.image, defaultdict[str, list[int]](list)
        for topic, number in partitions:
            numbers[topic].append(number)
        names = frozenset(numbers)
        self._follow(ImageDelta(image, image, topics=names, partitions=numbers, topic_configs=names))

    def _partitions_of(self, internal_topic: str, planned: int) -> int:
        topic = self.image.topics.get(internal_topic)
        return len(topic.partitions) if topic else planned

    def _dispatcher(self) -> Dispatcher:
        self._undo.append(self.long_work.stop)
        self._undo.append(self.search.stop)
        self._served = served_apis(
            node_id=self.node_id,
            config=lambda: self.config,
            image=lambda: self.image,
            clock=self.clock,
            long_work=self.long_work,
            search=self.search,
            cold_reads=self.cold_reads,
            configs=self.view.configs,
            controller=self.controller,
            logs=self.logs,
            moves=self.moves,
            replicas=self.replicas,
            throttles=self.throttles,
            quotas=self.quotas,
            groups=self.groups,
            transactions=self.transactions,
            guard=TransactionGuard(
                lambda: self.config,
                TransactionCoordinators(self.node_id, lambda: self.image, self.transactions, self.peers),
            ),
            markers=self._markers,
            producer_ids=self.producer_ids,
            fetch_sessions=self.fetch_sessions,
            read_index=ReadIndex(
                self.replicas,
                self.fetch_sessions,
                lambda: self._loader.is_certain,
                lambda: _FETCHES_WAITED_FOR * self.config.replica_fetch_wait_max_ms,
            ),
            forwarding=self._forwarding,
            authorizer=self._authorizer,
            trail=self._trail,
            telemetry=self.telemetry,
            token_keys=self._token_keys,
        )
        slow_ms = self.config.barnabas_slow_request_ms
        return Dispatcher(
            self._served,
            self.long_work,
            Metering(self.quotas, self.clock),
            slow=slow_ms / 1000 if slow_ms else math.inf,
        )

    def _start_jobs(self) -> None:
        jobs = upkeep(lambda: self.config, self.logs, self._serve_opened)
        if self._token_keys is not None:
            interval_ms = self.config.delegation_token_expiry_check_interval_ms
            jobs.append(Job("delegation tokens", interval_ms, self.controller.tokens.delete_expired))
        keys = self._tls_keys
        if keys is not None:
            jobs.append(Job("keys of the listeners", CHECK_MS, lambda: keys.check(self._disk)))
        self._undo.append(lambda: stop_all(jobs))
        for job in jobs:
            job.start()

    def _start_moves(self) -> None:
        def flush(partition: TopicPartition) -> None:
            with suppress(KafkaError):
                self._group_commit.add(self.replicas.find(*partition))

        self.moves = LogMoves(lambda: self.config, self.logs, self._environment, flush)
        self._undo.append(self.moves.stop)
        self.moves.start()

    def _start_cleaner(self) -> None:
        self.cleaner = LogCleaner(
            lambda: self.config, self.replicas, self.logs, self._environment, self._group_commit.add
        )
        self._undo.append(self.cleaner.stop)
        self.cleaner.start()


def _token_keys(config: BrokerConfig) -> TokenKeys | None:
    """The keys of delegation tokens; None without a secret. Raises ConfigError."""
    secret = config.delegation_token_secret_key
    try:
        return None if secret is None else TokenKeys(secret)
    except UnicodeEncodeError:
        name = "secret" if config.delegation_token_master_key is None else "master"
        raise ConfigError(
            f"delegation.token.{name}.key is not allowed: UTF-8 has no such characters"
        ) from None
