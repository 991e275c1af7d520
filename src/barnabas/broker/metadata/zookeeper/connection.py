"""Runs kazoo's client in its own thread for a store on an event loop.

kazoo connects, keeps the session alive, finds the next server and authenticates. This module adds:

- requests of our own;
- events of recursive watches;
- the time of the ensemble's last packet;
- one wake-up of the event loop for everything that kazoo's thread has found.

The thread passes everything through one inbox in the order of arrival. An event comes before the response to
the request that caused it, and the end of a connection before the failures of its requests.

This module uses private parts of kazoo, so kazoo's version is pinned. Of ``KazooClient``:

    _call _connection _conn_retry _session_callback _session_id _session_timeout _state

Of its ``ConnectionHandler``:

    _connect _invoke _read _read_header _read_socket _read_watch_event _send_ping _socket
    _socket_error_handling _submit _xid
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped, SessionExpiredError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import CLOSE_RESPONSE, ConnectionHandler
from kazoo.protocol.serialization import CloseInstance, Connect, Watch
from kazoo.protocol.states import KeeperState

from barnabas.base.errors import ConfigError
from barnabas.base.system.sockets import connect_local
from barnabas.base.text import logger_of
from barnabas.broker.metadata.store import Event
from barnabas.broker.metadata.zookeeper.address import ZooKeeperAddress
from barnabas.broker.metadata.zookeeper.requests import Request, failure_in

log = logger_of(__name__)

_EVENTS = {1: Event.CREATED, 2: Event.DELETED, 3: Event.CHANGED}
#: bytes
_READ_AHEAD = 1 << 18
#: how often in a session timeout the loop shows that it runs
_LOOKS = 6
#: attempts to connect that a session outlives
_ATTEMPTS_A_SESSION = 3
#: between two attempts to connect, growing; in seconds
_FIRST_RETRY, _LAST_RETRY = 0.05, 1.0


class Link(Enum):
    """The state of kazoo's connection."""

    CONNECTED = "connected"
    DROPPED = "dropped"
    EXPIRED = "expired"
    #: kazoo stops for good
    REFUSED = "refused"
    STOPPED = "stopped"


_LINKS = {
    KeeperState.CONNECTED: Link.CONNECTED,
    KeeperState.CONNECTED_RO: Link.CONNECTED,
    KeeperState.CONNECTING: Link.DROPPED,
    KeeperState.EXPIRED_SESSION: Link.EXPIRED,
    KeeperState.AUTH_FAILED: Link.REFUSED,
    KeeperState.CLOSED: Link.STOPPED,
}


class Owner(Protocol):
    """The object that uses a connection, and that the connection notifies.

    Its methods run on the event loop.
    """

    def link_changed(self, link: Link, session_id: int) -> None: ...

    def answered(self, pending: Pending, value: Any, error: Exception | None) -> None: ...

    def node_changed(self, event: Event, path: str) -> None: ...

    def inbox_emptied(self) -> None:
        """Do the work that is needed only once for many messages.

        The connection calls this after it has called the other methods for all messages that had arrived.
        """


class Pending:
    """A request without a response yet, in place of kazoo's own ``AsyncResult``."""

    __slots__ = ("_connection", "future", "request")

    def __init__(
        self, connection: ZooKeeperConnection, request: Request, future: asyncio.Future[Any]
    ) -> None:
        self._connection = connection
        self.request = request
        self.future = future

    def set(self, value: Any) -> None:
        self._connection.post(self._connection.owner.answered, self, value, failure_in(value))

    def set_exception(self, error: Exception) -> None:
        self._connection.post(self._connection.owner.answered, self, None, error)


class ZooKeeperConnection:
    """A connection to ZooKeeper: one kazoo client, which connects again until `stop`.

    Any thread can call `post`, and kazoo's thread calls `held`. Only the event loop may call the other
    methods.

    Args:
        address: addresses of the ensemble.
        session_timeout: seconds; the ensemble may grant another time.
        owner: object that gets the responses, the events of watches and the changes of the connection's
            state. Its methods are called on the event loop (`Owner`).
        auth: pairs of a scheme and a credential, with which each session authenticates.
        tls: called for each connection; returns the TLS context, or raises ConfigError. None: without TLS.
    """

    def __init__(
        self,
        address: ZooKeeperAddress,
        session_timeout: float,
        owner: Owner,
        auth: Sequence[tuple[str, str]] = (),
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self.owner = owner
        self._loop = asyncio.get_running_loop()
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._woken = False
        self._held = False
        #: when the loop last ran, in seconds of `time.monotonic`
        self.loop_seen_at = time.monotonic()
        self._looking: asyncio.TimerHandle | None = None
        self._log = _KazooLog()
        self._client = _Client(self, address, session_timeout, self._log, auth, tls)

    @property
    def heard_at(self) -> float:
        """The time of the ensemble's last packet, in seconds of `time.monotonic`; 0 before the first."""
        return self._client.handler_of_connection.heard_at

    @property
    def session_timeout(self) -> float:
        """The session timeout that the ensemble has granted, in seconds; 0 before the first session."""
        return self._client.handler_of_connection.session_timeout

    @property
    def trouble(self) -> str:
        """The last problem that kazoo reported; empty if there was none."""
        return self._log.trouble

    def start(self) -> None:
        self._look_at_loop()
        self._client.start_async()

    def send(self, pending: Pending) -> None:
        self._client._call(pending.request, pending)

    def drop(self) -> None:
        """Break the connection, so that kazoo connects again."""
        self._client.handler_of_connection.drop()

    async def stop(self, timeout_s: float) -> bool:
        """End the session. Return True if kazoo has ended the session within `timeout_s` seconds.

        If not, break the connection, wait for `timeout_s` seconds more, and return False. kazoo's thread may
        then still run, for example in an attempt to connect.
        """
        if self._looking is not None:
            self._looking.cancel()
        stopped = self._loop.create_future()

        def stop() -> None:
            with contextlib.suppress(Exception):  # kazoo complains when its thread does not end
                self._client.stop()
                self._client.close()
            self.post(_resolve, stopped)

        threading.Thread(target=stop, name="barnabas-zookeeper-stop", daemon=True).start()
        if (await asyncio.wait({stopped}, timeout=timeout_s))[0]:
            return True
        self.drop()
        await asyncio.wait({stopped}, timeout=timeout_s)
        return False

    def post(self, function: Callable[..., None], *args: Any) -> None:
        """Call `function` on the event loop, after all functions that were posted before."""
        self._inbox.append((function, args))
        if not self._held:
            self._wake()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Return a context in which `post` does not wake the event loop.

        At the end of the context, wake the loop once for everything that was posted.
        """
        self._held = True
        try:
            yield
        finally:
            self._held = False  # first: the loop's thread may post at the same time
            if self._inbox:
                self._wake()

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: no call waits any more
                self._loop.call_soon_threadsafe(self._empty_inbox)

    def _look_at_loop(self) -> None:
        self.loop_seen_at = time.monotonic()
        every = max(_FIRST_RETRY, (self.session_timeout or 1.0) / _LOOKS)
        self._looking = self._loop.call_later(every, self._look_at_loop)

    def _empty_inbox(self) -> None:
        self._woken = False  # first: what comes from now on wakes the loop again
        inbox = self._inbox
        while inbox:
            function, args = inbox.popleft()
            function(*args)
        self.owner.inbox_emptied()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _attempt_in(session_timeout: float) -> float:
    """Return the time limit for one attempt to connect, in seconds: a part of the session timeout.

    kazoo's own limit is the whole session timeout. A server that is starting can accept the connection and
    not answer. With kazoo's limit, the session would end before kazoo tried the next server.
    """
    return session_timeout / _ATTEMPTS_A_SESSION


class _Handler(ConnectionHandler):
    """Records the time of the ensemble's packets, passes events of recursive watches on, and reads ahead.

    kazoo takes two system calls and a new selector for each half of a packet. This handler reads all received
    bytes and processes them at once: a burst of events costs little, and wakes the event loop once.
    """

    heard_at = 0.0
    session_timeout = 0.0
    #: what was received and not read yet; empty while a connection is being made
    _received = bytearray()

    def _connect(self, *args: Any) -> Any:
        self._received = bytearray()
        return super()._connect(*args)

    def _read_socket(self, read_timeout: float) -> Any:
        received = self._received
        with self.client.connection.held():
            with self._socket_error_handling():
                some = self._receive_now(_READ_AHEAD)
            if some is None:
                return None
            received += some
            while True:
                result = super()._read_socket(
                    read_timeout
                )  # and the rest of a packet, if it is not all there
                if result == CLOSE_RESPONSE or not self._has_packet():
                    return result

    def _send_ping(self, connect_timeout: float) -> None:
        """Send a ping to keep the session alive, unless the event loop has stalled for a session timeout.

        After such a stall, end the session and raise SessionExpiredError. The broker learns of the end when
        its event loop runs again. With further pings, the session would stay alive, and the broker would lead
        partitions that it does not serve.

        Args:
            connect_timeout: seconds to wait until the socket accepts the ping; kazoo passes this value.
        """
        stalled = time.monotonic() - self.client.connection.loop_seen_at
        if stalled < self.session_timeout or not self.session_timeout:
            super()._send_ping(connect_timeout)
            return
        log.error("the event loop was blocked for %.1f s: ending the session with ZooKeeper", stalled)
        self._xid += 1
        self._submit(CloseInstance, connect_timeout, self._xid)
        raise SessionExpiredError("the event loop stood still")

    def _has_packet(self) -> bool:
        received = self._received
        return len(received) >= 4 and len(received) >= 4 + int.from_bytes(received[:4], "big")

    def _read(self, length: int, timeout: float) -> bytes:
        received = self._received
        while len(received) < length:
            received += self._receive(length - len(received), timeout)
        data = bytes(memoryview(received)[:length])
        del received[:length]
        return data

    def _receive(self, max_bytes: int, timeout: float) -> bytes:
        """Wait for data. Return at most `max_bytes` bytes, plus bytes of the same TLS record, if any.

        Raises kazoo's timeout exception if no data arrives within `timeout` seconds, and ConnectionDropped if
        the server has closed the connection.
        """
        with self._socket_error_handling():
            while (data := self._receive_now(max_bytes)) is None:
                if not self.handler.select([self._socket], [], [], timeout)[0]:
                    raise self.handler.timeout_exception("socket time-out during read") from None
            return data

    def _receive_now(self, max_bytes: int) -> bytes | None:
        """Return at most `max_bytes` bytes that have arrived; None if none of them can be decrypted yet.

        Over TLS, add the rest of the decrypted TLS record. Never wait.

        Raises:
            ConnectionDropped: the server has closed the connection.
        """
        try:
            data: bytes = self._socket.recv(max_bytes)
        except (BlockingIOError, ssl.SSLWantReadError):
            return None
        if not data:
            raise ConnectionDropped("socket connection broken")
        if isinstance(self._socket, ssl.SSLSocket) and (more := self._socket.pending()):
            data += self._socket.recv(more)  # the system knows nothing of it, and would not wake us
        return data

    def drop(self) -> None:
        sock = self._socket
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if isinstance(request, Connect):
            timeout = min(timeout, _attempt_in(self.client._session_timeout / 1000))
        result = super()._invoke(timeout, request, xid)
        if isinstance(request, Connect):
            self.heard_at = time.monotonic()
            if result[0].time_out > 0:
                self.session_timeout = result[0].time_out / 1000
        return result

    def _read_header(self, timeout: float) -> Any:
        read = super()._read_header(timeout)
        self.heard_at = time.monotonic()
        return read

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        watch, _ = Watch.deserialize(buffer, offset)
        event = _EVENTS.get(watch.type)
        if event is not None:
            connection = self.client.connection
            connection.post(connection.owner.node_changed, event, watch.path)


class Sockets(SequentialThreadingHandler):
    """Makes kazoo's sockets.

    With `socket_path`, they are connected to this Unix socket. With `tls`, which returns a TLS context or
    raises ConfigError, they use TLS over TCP. With neither, they are plain TCP sockets.
    """

    def __init__(
        self, tls: Callable[[], ssl.SSLContext] | None = None, socket_path: str | None = None
    ) -> None:
        super().__init__()
        self._tls = tls
        self._socket_path = socket_path
        #: why TLS did not begin, as it was logged last
        self._refused = ""

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, **options: Any
    ) -> socket.socket:
        timeout = _attempt_in(timeout)
        if self._socket_path is not None:
            return connect_local(self._socket_path, timeout)
        if self._tls is None:
            plain: socket.socket = super().create_connection(
                address=address, hostname=hostname, timeout=timeout, **options
            )
            return plain
        try:
            context = self._tls()
        except ConfigError as error:  # a file is being replaced: it is tried again
            self._tell(str(error))
            raise ConnectionDropped(str(error)) from error
        raw = socket.create_connection(address, timeout)
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            secured = context.wrap_socket(raw, server_hostname=hostname)
        except BaseException as error:
            raw.close()
            if isinstance(error, ssl.SSLError):
                reason = getattr(error, "verify_message", "") or error.reason or str(error)
                self._tell(f"TLS with ZooKeeper at {hostname}:{address[1]} has failed: {reason}")
            raise
        self._refused = ""
        return secured

    def _tell(self, reason: str) -> None:
        """Log a warning, unless the last attempt to connect failed for the same reason."""
        if reason != self._refused:
            self._refused = reason
            log.warning("%s", reason)


def kazoo_hosts(address: ZooKeeperAddress) -> str:
    """Return the servers in the form that kazoo accepts: ``host:port,host:port``.

    kazoo accepts only TCP addresses. For a Unix socket the result is a placeholder, and `Sockets` connects to
    the path of the socket instead.
    """
    return ",".join(address.servers) if address.socket_path is None else "127.0.0.1"


class _Client(KazooClient):
    def __init__(
        self,
        connection: ZooKeeperConnection,
        address: ZooKeeperAddress,
        session_timeout: float,
        kazoo_log: _KazooLog,
        auth: Sequence[tuple[str, str]],
        tls: Callable[[], ssl.SSLContext] | None,
    ) -> None:
        self.connection = connection
        super().__init__(
            hosts=kazoo_hosts(address),
            handler=Sockets(tls, address.socket_path),
            timeout=session_timeout,
            auth_data=list(auth),
            connection_retry={"max_tries": -1, "delay": _FIRST_RETRY, "max_delay": _LAST_RETRY},
            logger=kazoo_log,
        )
        self._connection = self.handler_of_connection = _Handler(
            self, self._conn_retry.copy(), logger=kazoo_log
        )

    def _session_callback(self, state: Any) -> None:
        """Tell the owner the new state of the connection. kazoo calls this in its thread.

        The owner must learn that a connection has ended before the pending requests fail. If the requests
        failed first, the owner would send its next requests over the ended connection.

        Args:
            state: kazoo's ``KeeperState``.
        """
        link = _LINKS[state]
        changed, session_id = state != self._state, self._session_id or 0
        if changed and link is not Link.CONNECTED:
            self.connection.post(self.connection.owner.link_changed, link, session_id)
        super()._session_callback(state)
        if changed and link is Link.CONNECTED:
            self.connection.post(self.connection.owner.link_changed, link, session_id)


class _KazooLog:
    """Logs kazoo's messages at debug level, because the store itself reports states.

    At a higher level, a message for each attempt to connect would fill the log while the ensemble is
    unavailable. Only unexpected exceptions are logged as errors.
    """

    def __init__(self) -> None:
        self.trouble = ""

    def log(self, level: int, message: str, *args: Any) -> None:
        pass  # each packet

    def debug(self, message: str, *args: Any) -> None:
        pass  # each request

    def info(self, message: str, *args: Any) -> None:
        log.debug(message, *args)

    def warning(self, message: str, *args: Any) -> None:
        if args:  # without any it tells of a state, not of a reason
            self.trouble = message % args
        log.debug(message, *args)

    warn = warning

    def exception(self, message: str, *args: Any) -> None:
        log.exception(message, *args)
