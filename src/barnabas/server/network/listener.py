"""Accepts connections on one endpoint, within the broker's limits."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import Counter
from collections.abc import Callable

from barnabas.config import BrokerConfig
from barnabas.environment.network import BindError, Network, ServerSocket
from barnabas.errors import ConfigError
from barnabas.server.network.busy_polling import BusyPolling
from barnabas.server.network.endpoint import Endpoint
from barnabas.server.network.session import Serve, Session
from barnabas.text import logger_of, shown

log = logger_of(__name__)


class Closings:
    """Which closings of connections are logged: of those from one host for one reason, one in ten seconds.

    A health check, or a client that tries again for ever, would fill the log otherwise.
    """

    INTERVAL = 10.0
    MOST_KNOWN = 1000

    def __init__(self) -> None:
        #: by host and reason: when it was last logged, and how often it was not since
        self._known: dict[tuple[str, str], tuple[float, int]] = {}

    def line(self, host: str, reason: str, now: float) -> str | None:
        """What to log as the reason; None for nothing. `now` is in seconds."""
        key = host, shown(reason)
        logged, more = self._known.get(key, (-self.INTERVAL, 0))
        if now - logged < self.INTERVAL:
            self._known[key] = logged, more + 1
            return None
        if len(self._known) >= self.MOST_KNOWN:
            self._known.clear()
        self._known[key] = now, 0
        return f"{key[1]} ({more} more like it since)" if more else key[1]


class Connections:
    """Every open connection of a broker, counted against ``max.connections`` and its like per address.

    `most` is how many the process can bear: one more could cost a log the file it needs, and that its disk.
    """

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        *,
        most: int | None = None,
        busy_polling: BusyPolling | None = None,
    ) -> None:
        self._config = config
        self._most = most
        self.busy_polling = busy_polling
        self.closings = Closings()
        self._next_id = itertools.count(1)
        self._per_ip: Counter[str] = Counter()
        self._open: dict[Session, None] = {}
        self._last_closed = -math.inf

    def __len__(self) -> int:
        return len(self._open)

    @property
    def config(self) -> BrokerConfig:
        """The settings that hold now."""
        return self._config()

    def next_id(self) -> int:
        return next(self._next_id)

    def admit(self, session: Session) -> bool:
        """Count a new connection; False, with a log line, when it is one too many."""
        config = self._config()
        host = session.client_host
        if self._most is not None and len(self._open) >= self._most:
            log.warning(
                "refusing a connection from %s: %d are open, and the rest of the files this process may open "
                "is for logs: raise the limit (ulimit -n)",
                host,
                self._most,
            )
            return False
        if len(self._open) >= config.max_connections:
            log.warning(
                "refusing a connection from %s: max.connections=%d reached", host, config.max_connections
            )
            return False
        if self._per_ip[host] >= config.max_connections_per_ip:
            log.warning(
                "refusing a connection from %s: max.connections.per.ip=%d reached",
                host,
                config.max_connections_per_ip,
            )
            return False
        self._open[session] = None
        self._per_ip[host] += 1
        return True

    def forget(self, session: Session) -> None:
        """Stop counting a connection that ended; one that was refused was never counted."""
        if session not in self._open:
            return
        del self._open[session]
        self._last_closed = asyncio.get_running_loop().time()
        self._per_ip[session.client_host] -= 1
        if not self._per_ip[session.client_host]:
            del self._per_ip[session.client_host]

    def silent_for(self) -> float:
        """Seconds since a client has last sent something, or has gone."""
        last = max((session.last_active for session in self._open), default=-math.inf)
        return asyncio.get_running_loop().time() - max(last, self._last_closed)

    def close_all(self) -> None:
        for session in list(self._open):
            session.shut_down()


class Listener:
    """One entry of ``listeners``, bound."""

    #: what starts a request, from `start` on
    serve: Serve

    def __init__(self, endpoint: Endpoint, connections: Connections, network: Network) -> None:
        #: as configured; once bound, with the real port
        self.endpoint = endpoint
        self._connections = connections
        self._network = network
        self._socket: ServerSocket | None = None
        self.admit = connections.admit
        self.busy_polling = connections.busy_polling
        self.forget = connections.forget
        self.closings = connections.closings

    @property
    def config(self) -> BrokerConfig:
        return self._connections.config

    def bind(self) -> None:
        """Take the address; nothing is accepted yet.

        Raises:
            ConfigError: the address cannot be had.
        """
        endpoint = self.endpoint
        try:
            self._socket = self._network.bind(endpoint.host, endpoint.port)
        except BindError as error:
            raise ConfigError(f"listeners={endpoint} cannot be used: {error}") from error
        self.endpoint = Endpoint(endpoint.name, endpoint.host, self._socket.port)

    async def start(self, serve: Serve) -> None:
        """Accept connections, whose requests `serve` starts; the listener is bound."""
        self.serve = serve
        assert self._socket is not None
        await self._socket.accept(
            lambda: Session(self, self._connections.next_id()), backlog=self.config.socket_listen_backlog_size
        )

    def unbind(self) -> None:
        """Accept no more; open connections stay."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
