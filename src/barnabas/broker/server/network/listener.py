"""Accepts connections on one endpoint, within the broker's limits."""

from __future__ import annotations

import asyncio
import itertools
import math
import ssl
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace

from barnabas.base.environment.network import BindError, Network, ServerSocket, canonical_address
from barnabas.base.errors import ConfigError
from barnabas.base.text import logger_of
from barnabas.broker.config import BrokerConfig
from barnabas.broker.config.declaration import INT_MAX
from barnabas.broker.logins.subjects import SubjectRules, subject_of
from barnabas.broker.quotas import ConnectionRates
from barnabas.broker.server.network.busy_polling import BusyPolling
from barnabas.broker.server.network.close_log import CloseLog
from barnabas.broker.server.network.endpoint import Endpoint
from barnabas.broker.server.network.in_place import SHARED_BYTES
from barnabas.broker.server.network.session import ClientSession, Serve
from barnabas.broker.server.network.turns import Turns
from barnabas.broker.view import BrokerView
from barnabas.kafka.security.principal import ANONYMOUS, Principal, check_name

log = logger_of(__name__, is_limited=True)

#: time limit for connections to end, in seconds
_CLOSING_SECONDS = 2.0


def max_per_ip(config: BrokerConfig, host: str) -> tuple[int, str]:
    """Return how many connections the address `host` may have, and the setting that limits them.

    The setting is ``max.connections.per.ip.overrides`` if it has this address, and ``max.connections.per.ip``
    if not.
    """
    for override in config.max_connections_per_ip_overrides:
        address, _, limit = override.rpartition(":")
        if canonical_address(address) == host:
            return int(limit), "max.connections.per.ip.overrides"
    return config.max_connections_per_ip, "max.connections.per.ip"


class Connections:
    """Counts all open connections of a broker, and applies the limits on their number.

    Args:
        view: settings of the broker.
        max_descriptors: number of file descriptors for connections; None for no limit. With more connections,
            a log could fail to open a file, and its log directory would go offline.
        turns: divides requests among turns of the event loop.
        busy_polling: polls for requests before the event loop sleeps.
        rates: limits the rate of new connections.
    """

    def __init__(
        self,
        view: BrokerView,
        turns: Turns,
        *,
        max_descriptors: int | None = None,
        busy_polling: BusyPolling | None = None,
        rates: ConnectionRates | None = None,
    ) -> None:
        self._view = view
        self.rates = rates or ConnectionRates(lambda: asyncio.get_running_loop().time())
        #: name of the inter-broker listener, to which the broker-wide ``max.connection.creation.rate`` does
        #: not apply; "" if clients use this listener, too
        self.protected = ""
        self._max_descriptors = max_descriptors
        self.busy_polling = busy_polling
        self.turns = turns
        self.close_log = CloseLog()
        self.shared_buffer = memoryview(bytearray(SHARED_BYTES))
        self._next_id = itertools.count(1)
        self._per_ip: Counter[str] = Counter()
        self._open: dict[ClientSession, None] = {}
        self._last_closed = -math.inf
        #: by listener: number of open connections, and of connections opened since the start
        self.open: Counter[str] = Counter()
        self.opened: Counter[str] = Counter()
        #: whether `end` was called. The loop can hand over a connection that it accepted before
        self._has_ended = False
        #: resolved when the last one has gone
        self._all_gone: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    @property
    def config(self) -> BrokerConfig:
        """Current settings."""
        return self._view.config

    def next_id(self) -> int:
        return next(self._next_id)

    def admit(self, session: ClientSession) -> float | None:
        """Count a new connection. Return the seconds to wait before the broker serves it; 0 for no delay.

        If the connection exceeds a limit, do not count it. Then log the reason and return None. After `end`,
        return None for each connection.
        """
        if self._has_ended:
            return None
        config = self._view.config
        host = session.client_host
        if self._max_descriptors is not None and len(self._open) >= self._max_descriptors:
            log.warning(
                "refusing a connection from %s: %d are open, and the rest of the files this process may open "
                "is for logs: raise the limit (ulimit -n)",
                host,
                self._max_descriptors,
            )
            return None
        if len(self._open) >= config.max_connections:
            log.warning(
                "refusing a connection from %s: max.connections=%d reached", host, config.max_connections
            )
            return None
        limit_here = config.for_listener(session.listener).max_connections
        if self.open[session.listener] >= limit_here:
            log.warning(
                "refusing a connection from %s: listener.name.%s.max.connections=%d reached",
                host,
                session.listener.lower(),
                limit_here,
            )
            return None
        limit, setting = max_per_ip(config, host)
        if self._per_ip[host] >= limit:
            log.warning("refusing a connection from %s: %s=%d reached", host, setting, limit)
            return None
        if not self.rates.admit(host):
            line = self.close_log.line(
                host, "its connection_creation_rate is reached", asyncio.get_running_loop().time()
            )
            if line is not None:
                log.warning("refusing a connection from %s: %s", host, line)
            return None
        self._open[session] = None
        self.open[session.listener] += 1
        self.opened[session.listener] += 1
        self._per_ip[host] += 1
        return self._delay(config, session.listener)

    def _delay(self, config: BrokerConfig, listener: str) -> float:
        """Count a new connection for ``max.connection.creation.rate``, and return its delay (KIP-612).

        The delay is in seconds; 0 for none. The limit for the whole broker does not apply to the inter-broker
        listener. A listener's own limit applies to all its connections, also to connections from brokers.

        Args:
            config: settings of the broker.
            listener: name of the listener that has accepted the connection.
        """
        delay, limit = 0.0, config.max_connection_creation_rate
        if limit < INT_MAX and listener != self.protected:
            delay = self.rates.delay(limit)
        if config.has_own(listener, "max.connection.creation.rate"):
            own = config.for_listener(listener).max_connection_creation_rate
            delay = max(delay, self.rates.delay(own, listener))
        return delay

    def forget(self, session: ClientSession) -> None:
        """Stop counting a connection that has ended. Do nothing for a rejected connection."""
        if session not in self._open:
            return
        del self._open[session]
        self.open[session.listener] -= 1
        self._last_closed = asyncio.get_running_loop().time()
        self._per_ip[session.client_host] -= 1
        if not self._per_ip[session.client_host]:
            del self._per_ip[session.client_host]
        if self._all_gone is not None and not self._open and not self._all_gone.done():
            self._all_gone.set_result(None)

    def silent_for(self) -> float:
        """Return the seconds since a client last sent data or disconnected; infinite if none has so far."""
        last = max((session.last_active for session in self._open), default=-math.inf)
        return asyncio.get_running_loop().time() - max(last, self._last_closed)

    def close_all(self) -> None:
        for session in list(self._open):
            session.shut_down()

    def close_users(self, names: Collection[str]) -> None:
        """Close the connections on which users with these names have logged in by SASL."""
        for session in list(self._open):
            if session.has_logged_in and session.principal.name in names:
                session.close(f"{session.principal} cannot log in any more")

    async def end(self) -> None:
        """Close all connections, and wait up to two seconds until they have ended. Admit no more connections.

        Without this wait, uvloop can hang when the loop closes with an open TLS connection.
        """
        self._has_ended = True
        self.close_all()
        if self._open:
            self._all_gone = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._all_gone], timeout=_CLOSING_SECONDS)


class Listener:
    """One listener of the setting ``listeners``: binds its address and accepts connections.

    Args:
        endpoint: address to bind.
        connections: counts the connections of all listeners.
        network: network of the broker.
        tls: called without arguments; returns the TLS context for the next connection. For a listener without
            TLS, `tls` is None.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        connections: Connections,
        network: Network,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        #: the configured endpoint; after `bind`, with the real port
        self.endpoint = endpoint
        self._users = (
            SubjectRules(connections.config.for_listener(endpoint.name).ssl_principal_mapping_rules)
            if endpoint.has_tls
            else None
        )
        self._connections = connections
        self._network = network
        self._tls = tls
        self._begin: Callable[[], Serve]
        self._socket: ServerSocket | None = None
        self.admit = connections.admit
        self.busy_polling = connections.busy_polling
        self.turns = connections.turns
        self.forget = connections.forget
        self.close_log = connections.close_log
        self.shared_buffer = connections.shared_buffer

    @property
    def config(self) -> BrokerConfig:
        return self._connections.config

    def bind(self) -> None:
        """Bind the address. The listener accepts no connections yet.

        Raises:
            ConfigError: the address cannot be bound.
        """
        endpoint = self.endpoint
        try:
            self._socket = self._network.bind(endpoint.host, endpoint.port)
        except BindError as error:
            raise ConfigError(f"listeners={endpoint} cannot be used: {error}") from error
        self.endpoint = replace(endpoint, port=self._socket.port)

    @property
    def first_request_bytes(self) -> int:
        config = self.config
        max_bytes = config.socket_request_max_bytes
        return min(max_bytes, config.sasl_server_max_receive_size) if self.endpoint.has_sasl else max_bytes

    def begin(self) -> Serve:
        return self._begin()

    def user_of(self, certificate: bytes | None) -> Principal:
        """Return the principal for a client's certificate (`SessionHost.user_of`).

        The result is ANONYMOUS without a certificate, and on a listener with SASL or without TLS.

        Raises:
            ValueError: no rule of ``ssl.principal.mapping.rules`` gives a valid name.
        """
        if certificate is None or self._users is None or self.endpoint.has_sasl:
            return ANONYMOUS
        subject = subject_of(certificate)
        name = self._users.user(subject)
        if not name:
            raise ValueError(
                f"no rule of ssl.principal.mapping.rules names a user for its certificate '{subject}'"
            )
        check_name(name)
        return Principal(name)

    async def start(self, begin: Callable[[], Serve]) -> None:
        """Start to accept connections.

        For each connection, `begin` returns the function that serves its requests.
        """
        self._begin = begin
        assert self._socket is not None
        await self._socket.accept(
            lambda: ClientSession(self, self._connections.next_id()),
            backlog=self.config.socket_listen_backlog_size,
            tls=self._tls,
        )

    def unbind(self) -> None:
        """Stop accepting connections. Open connections stay open."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
