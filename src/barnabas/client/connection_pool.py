"""Connections to the brokers of a cluster, which are kept between requests."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

from barnabas.client.addresses import Address
from barnabas.client.connection import CLIENT_ID, BrokerConnection
from barnabas.client.errors import ClientError
from barnabas.client.servers import Servers

#: Seconds that a broker has to accept a connection, or to answer a request that waits for nothing.
RESPONSE_TIMEOUT = 5.0
#: the most idle connections to one broker; each saves a thread a new login
_MAX_IDLE = 4


class ConnectionPool:
    """A pool of connections for all threads. Only the thread that has taken a connection may use it."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._lock = threading.Lock()
        #: idle connections to each broker, the most recently used last
        self._idle: dict[Address, list[BrokerConnection]] = {}

    def close(self) -> None:
        """Close the idle connections. The next request opens new ones."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for connection in itertools.chain(*idle.values()):
            connection.close()

    def acquire(
        self, address: Address, deadline: float, on_open: Callable[[BrokerConnection, Address], None]
    ) -> BrokerConnection:
        """Return a connection to the broker at `address`: an idle one, or a new one.

        The caller must give the connection back, or close it.

        Args:
            deadline: monotonic seconds. A new connection may take a part of the time until then (see
                `fair_share`).
            on_open: called with a new connection before this method returns it.

        Raises:
            ClientError: the broker accepts no connection in time, or `on_open` fails.
        """
        while (idle := self._pop(address)) is not None:
            if idle.is_usable():
                return idle
            idle.close()  # the broker closed it while it was idle
        connection = BrokerConnection(
            *address,
            fair_share(deadline - time.monotonic(), RESPONSE_TIMEOUT),
            client_id=self._servers.settings.get("client.id", CLIENT_ID),
            security=self._servers.security,
        )
        try:
            on_open(connection, address)
        except BaseException:
            connection.close()
            raise
        return connection

    def release(self, address: Address, connection: BrokerConnection) -> None:
        """Put a connection without a pending request back into the pool, or close it if the pool is full."""
        with self._lock:
            idle = self._idle.setdefault(address, [])
            if len(idle) < _MAX_IDLE:
                idle.append(connection)
                return
        connection.close()

    def _pop(self, address: Address) -> BrokerConnection | None:
        with self._lock:
            idle = self._idle.get(address)
            return idle.pop() if idle else None


class PendingResponse:
    """A request whose response has not been received yet. The owner must call `receive` or `abandon`."""

    def __init__(self, pool: ConnectionPool, address: Address, connection: BrokerConnection) -> None:
        self._pool = pool
        self._address = address
        self._connection = connection

    def fileno(self) -> int:
        """Return the file descriptor for a selector. It is readable when the response begins to arrive."""
        return self._connection.fileno()

    def receive(self, deadline: float, response_timeout: float | None = None) -> Any:
        """Wait for the response, and return it. Raises ClientError if none arrives in time.

        Args:
            deadline: end of the wait, in monotonic seconds.
            response_timeout: largest number of seconds to wait; None for all the time that is left.
        """
        try:
            self._connection.wait_for(answer_time(deadline, response_timeout))
            response = self._connection.receive()
        except ClientError:
            self._connection.close()
            raise
        self._pool.release(self._address, self._connection)
        return response

    def abandon(self) -> None:
        """Close the connection, because the response is not needed."""
        self._connection.close()


def answer_time(deadline: float, response_timeout: float | None) -> float:
    """Return the seconds to wait for a broker's answer, for a deadline in monotonic seconds.

    With `response_timeout`, some of the time until the deadline stays for other brokers (see `fair_share`).
    """
    left = max(deadline - time.monotonic(), 0.001)
    return left if response_timeout is None else fair_share(left, response_timeout)


def fair_share(left: float, response_timeout: float) -> float:
    """Return the seconds to spend on one broker: half of `left`, but at least 0.5 seconds.

    The result is never above `response_timeout` or `left`. Both are in seconds.
    """
    left = max(left, 0.001)
    return min(response_timeout, max(left / 2, 0.5), left)
