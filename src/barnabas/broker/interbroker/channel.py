"""Sends requests to one peer over one connection, which is opened again when a request needs it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, TypeAlias

from barnabas.base.environment.network import Network
from barnabas.base.errors import ProtocolError
from barnabas.base.tasks import start_task
from barnabas.base.text import logger_of
from barnabas.broker.interbroker.connection import EncodedRequest, PeerConnection
from barnabas.broker.interbroker.errors import (
    ChannelClosedError,
    ChannelError,
    ChannelFullError,
    DisconnectedError,
    NotConnectedError,
    RequestTimeoutError,
    UnsupportedVersionError,
)
from barnabas.broker.interbroker.login import PeerLogin
from barnabas.kafka.protocol.messages.produce import ProduceRequest
from barnabas.kafka.protocol.schema import Request, Response
from barnabas.kafka.security.errors import SaslError

log = logger_of(__name__)

#: After this part of a login's lifetime (KIP-368), a connection without unanswered requests is replaced.
_OF_LIFETIME = 0.8

#: host and port
Address: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """The limits of a channel.

    Times are in seconds. The names of Kafka's settings with the same meaning are in parentheses.

    Attributes:
        request_timeout: default time limit from `submit` to the response (``request.timeout.ms``).
        connect_timeout: time limit for one attempt to connect, until the login is complete
            (``socket.connection.setup.timeout.ms``).
        reconnect_backoff: time between the starts of two attempts to connect (``reconnect.backoff.ms``). It
            doubles with each failed attempt. The channel multiplies each time by a random factor from 0.8 to
            1.2.
        reconnect_backoff_max: the longest time between two attempts, before this multiplication
            (``reconnect.backoff.max.ms``).
        max_idle: time after which an unused connection is replaced, because the peer may close it
            (``connections.max.idle.ms``).
        max_in_flight: number of requests that may be unanswered (``max.in.flight.requests.per.connection``).
        max_in_flight_bytes: while the unanswered requests have this many bytes or more, the channel sends no
            other request.
        max_queued: number of requests that may wait to be sent; a further one is rejected.
        max_response_bytes: size of the largest response, in bytes; a larger one closes the connection.
    """

    request_timeout: float = 30.0
    connect_timeout: float = 10.0
    reconnect_backoff: float = 0.05
    reconnect_backoff_max: float = 1.0
    max_idle: float = 540.0
    max_in_flight: int = 64
    max_in_flight_bytes: int = 16 * 1024 * 1024
    max_queued: int = 10_000
    max_response_bytes: int = 1 << 28


class _Call:
    """A request from its `submit` until its response arrives or it fails."""

    __slots__ = ("connection", "future", "max_version", "request", "then", "timeout", "timer")

    def __init__(
        self,
        request: Request | EncodedRequest,
        max_version: int | None,
        timeout: float,
        future: asyncio.Future[Any],
        then: Callable[[asyncio.Future[Any]], None] | None,
    ) -> None:
        self.request = request
        self.max_version = max_version
        self.timeout = timeout
        self.future = future
        self.then = then
        self.timer: asyncio.TimerHandle | None = None
        #: the connection on which the request was sent; None before
        self.connection: PeerConnection | None = None

    @property
    def name(self) -> str:
        return type(self.request).__name__.removesuffix("Request")

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            if self.then is not None:
                self.then(self.future)


class Channel:
    """Sends requests to one peer over one connection. Only the event loop may use it.

    - The channel connects when a request is submitted. A failed attempt fails all waiting requests
      (`NotConnectedError`). The next attempt waits for the back-off.
    - The channel sends requests in the order of submission, within the limits. The peer answers them in this
      order. So a request that the peer delays also delays the later ones: use a separate channel for it.
    - When a connection ends, the unanswered requests fail (`DisconnectedError`). Requests that were not
      sent yet use the next connection.
    - If a sent request has no answer in time, the connection is closed, as in Kafka's clients, because later
      answers could not arrive either.
    - When a caller cancels a request's future, the request is not sent, or its answer is dropped.

    Args:
        network: network of this process.
        address: returns the peer's present address, before each attempt to connect; None if it is not known.
        name: name of the peer, for messages and logs.
        client_id: client id in each request.
        rng: varies the back-off.
        settings: limits of the channel.
        tls: TLS context; None for no TLS.
        login: SASL login; None for no login.
    """

    def __init__(
        self,
        network: Network,
        address: Callable[[], Address | None],
        *,
        name: str,
        client_id: str,
        rng: Random,
        settings: ChannelSettings | None = None,
        tls: ssl.SSLContext | None = None,
        login: PeerLogin | None = None,
    ) -> None:
        self.name = name
        self.settings = settings or ChannelSettings()
        self._network = network
        self._address = address
        self._client_id = client_id
        self._rng = rng
        self._tls = tls
        self._login = login
        self._loop = asyncio.get_running_loop()
        #: what was not sent yet, in order
        self._queue: dict[_Call, None] = {}
        self._connection: PeerConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        #: failed attempts to connect in a row
        self._failures = 0
        self._failing_since = 0.0
        self._last_attempt: float | None = None
        self._last_used = 0.0
        self._connected_at = 0.0
        self._drained: asyncio.Future[None] | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<channel to {self.name}>"

    @property
    def in_flight(self) -> int:
        """Number of unanswered requests."""
        return len(self._connection) if self._connection is not None else 0

    @property
    def queued(self) -> int:
        """Number of requests that wait to be sent."""
        return len(self._queue)

    async def send(
        self, request: Request, *, timeout_s: float | None = None, max_version: int | None = None
    ) -> Any:
        """Send a request, and return its response.

        Args:
            request: the request.
            timeout_s: time limit in seconds from now. If the peer may delay the response, include this delay.
                None for the channel's `request_timeout`.
            max_version: highest version of the request to use; None for no such limit.

        Raises:
            ChannelError: there is no response; the class and `may_have_been_carried_out` give the reason.
            ProtocolError: the request cannot be encoded.
            ValueError: the request is a produce with acks=0, which gets no response.
        """
        return await self.submit(request, timeout_s=timeout_s, max_version=max_version)

    def submit(
        self,
        request: Request | EncodedRequest,
        *,
        timeout_s: float | None = None,
        max_version: int | None = None,
        then: Callable[[asyncio.Future[Any]], None] | None = None,
    ) -> asyncio.Future[Any]:
        """Queue a request behind the earlier ones, and return a future of its response at once.

        The future fails with `ChannelError` if there is no response, and with `ProtocolError` if
        the request cannot be encoded.

        An `EncodedRequest` decodes its response itself, with its method `decode`. If `decode` returns None,
        the channel decodes the response with the general codec.

        Args:
            request: the request.
            timeout_s: time limit in seconds from now. If the peer may delay the response, include this delay.
                None for the channel's `request_timeout`.
            max_version: highest version of the request to use; None for no such limit.
            then: called with the finished future in the turn of the event loop in which the response arrives.
                A callback of the future is called in the next turn. `then` is not called for a cancelled
                future, and it can be called before this method returns.

        Raises:
            ValueError: the request is a produce with acks=0, which gets no response.
        """
        if isinstance(request, ProduceRequest) and not request.acks:
            raise ValueError("a produce with acks=0 has no answer that a channel could wait for")
        future: asyncio.Future[Any] = self._loop.create_future()
        timeout = self.settings.request_timeout if timeout_s is None else timeout_s
        call = _Call(request, max_version, timeout, future, then)
        if self._is_closed:
            call.fail(ChannelClosedError(f"{self.name}: the channel is closed"))
            return future
        if len(self._queue) >= self.settings.max_queued:
            call.fail(ChannelFullError(f"{self.name}: {len(self._queue)} requests wait to be sent already"))
            return future
        self._recycle_if_idle()
        call.timer = self._loop.call_later(timeout, self._time_out, call)
        connection = self._connection
        if connection is not None and not self._queue and self._has_room(connection):
            self._transmit(connection, call)
        else:
            self._queue[call] = None
            self._pump()
        if call.connection is None:
            future.add_done_callback(partial(self._given_up, call))
        return future

    async def close(self, *, grace: float = 0.0) -> None:
        """Close the connection.

        Waiting requests and later ones fail (`ChannelClosedError`). Sent requests fail, too, if they have no
        answer after `grace` seconds.

        Args:
            grace: seconds to wait for the answers to sent requests.
        """
        self._is_closed = True
        self._fail_queue(ChannelClosedError(f"{self.name}: the channel is closed"))
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        connection = self._connection
        if connection is None:
            return
        if len(connection) and grace > 0:
            self._drained = self._loop.create_future()
            await asyncio.wait(
                [self._drained, connection.lost], timeout=grace, return_when=asyncio.FIRST_COMPLETED
            )
        connection.end(
            ChannelClosedError(
                f"{self.name}: the channel was closed before the answer", may_have_been_carried_out=True
            )
        )
        await connection.lost

    # --- sending ---

    def _pump(self) -> None:
        """Send waiting requests, as many as the limits allow. If there is no connection, begin to connect."""
        if not self._queue:
            return
        connection = self._connection
        if connection is None:
            if self._connecting is None and not self._is_closed:
                self._connecting = start_task(self._connect(), f"connection to {self.name}")
            return
        while self._queue and self._has_room(connection):
            call = next(iter(self._queue))
            del self._queue[call]
            if not call.future.done():
                self._transmit(connection, call)

    def _has_room(self, connection: PeerConnection) -> bool:
        return (
            len(connection) < self.settings.max_in_flight
            and connection.unanswered_bytes < self.settings.max_in_flight_bytes
            and not connection.is_write_paused
            and connection.is_open
        )

    def _transmit(self, connection: PeerConnection, call: _Call) -> None:
        version = connection.common_version(call.request, call.max_version)
        if version is None:
            call.fail(UnsupportedVersionError(f"{self.name} serves no version of {call.name} that we know"))
            return
        try:
            connection.send(call.request, version, partial(self._answered, call))
        except ProtocolError as error:
            call.fail(error)
            return
        call.connection = connection
        self._last_used = self._loop.time()

    def _answered(self, call: _Call, answer: Response | Exception) -> None:
        if call.timer is not None:
            call.timer.cancel()
        if isinstance(answer, ChannelError):
            call.fail(answer)
        elif isinstance(answer, Exception):
            error = DisconnectedError(
                f"{self.name}: the connection ended before the answer to {call.name}: {_reason(answer)}"
            )
            error.__cause__ = answer
            call.fail(error)
        else:
            is_awaited = not call.future.done()
            if is_awaited:
                call.future.set_result(answer)
            self._last_used = self._loop.time()
            if self._drained is not None and not self.in_flight and not self._drained.done():
                self._drained.set_result(None)
            self._pump()
            if is_awaited and call.then is not None:
                call.then(call.future)

    def _given_up(self, call: _Call, future: asyncio.Future[Any]) -> None:
        """Handle the end of a call's future. If the call was not sent yet, remove it from the queue.

        Such a call has failed or was cancelled.
        """
        if call.connection is None:
            self._queue.pop(call, None)
            if call.timer is not None:
                call.timer.cancel()
        # A sent request keeps its timer: if its answer does not arrive, later answers cannot arrive either.

    def _time_out(self, call: _Call) -> None:
        if call.connection is None:
            call.fail(RequestTimeoutError(f"{self.name}: {call.name} was not sent within {call.timeout:g} s"))
            return
        message = f"{self.name}: no answer to {call.name} within {call.timeout:g} s"
        call.fail(RequestTimeoutError(message, may_have_been_carried_out=True))
        call.connection.end(TimeoutError(f"no answer to {call.name} within {call.timeout:g} s"))

    def _fail_queue(self, error: ChannelError) -> None:
        queue, self._queue = self._queue, {}
        for call in queue:
            call.fail(error)

    # --- connecting ---

    async def _connect(self) -> None:
        """Open a connection, and send the waiting requests.

        If no connection can be opened, fail these requests.
        """
        try:
            await self._back_off()
            self._last_attempt = self._loop.time()
            address = self._address()
            if address is None:
                self._connect_failed("its address is not known")
                return
            where = f" at {address[0]}:{address[1]}"
            try:
                async with asyncio.timeout(self.settings.connect_timeout):
                    connection = await self._open(address)
            except TimeoutError:
                self._connect_failed(f"no answer within {self.settings.connect_timeout:g} s", where)
            except (OSError, ProtocolError, SaslError) as error:
                self._connect_failed(_reason(error), where)
            else:
                self._connected(connection, where)
        except Exception:  # a bug, such as one of `address`: nobody shall wait for it until the time is up
            self._fail_queue(NotConnectedError(f"no connection to {self.name}: see the log of this broker"))
            raise
        finally:
            self._connecting = None
        self._pump()

    async def _open(self, address: Address) -> PeerConnection:
        """Open a connection, with handshake and login.

        Raises:
            OSError: the connection cannot be opened, or has ended.
            ProtocolError: the peer does not answer in this protocol.
            SaslError: the login has failed.
        """
        _, connection = await self._network.connect(self._new_connection, *address, tls=self._tls)
        try:
            await connection.handshake()
            if self._login is not None:
                await connection.log_in(self._login)
        except BaseException:
            connection.end(ConnectionAbortedError("given up"))
            raise
        return connection

    def _new_connection(self) -> PeerConnection:
        return PeerConnection(
            self._client_id, self.settings.max_response_bytes, self._pump, self._disconnected
        )

    async def _back_off(self) -> None:
        """Wait until the next attempt to connect may start."""
        if self._last_attempt is None:
            return
        settings = self.settings
        # Also after a success: a peer that accepts and disconnects would keep both sides busy.
        backoff = min(
            settings.reconnect_backoff * 2 ** min(max(self._failures - 1, 0), 30),
            settings.reconnect_backoff_max,
        )
        wait = self._last_attempt + backoff * self._rng.uniform(0.8, 1.2) - self._loop.time()
        if wait > 0:
            await asyncio.sleep(wait)

    def _connect_failed(self, reason: str, where: str = "") -> None:
        if not self._failures:
            self._failing_since = self._loop.time()
            log.warning("no connection to %s%s: %s; trying again when needed", self.name, where, reason)
        self._failures += 1
        self._fail_queue(NotConnectedError(f"no connection to {self.name}{where}: {reason}"))

    def _connected(self, connection: PeerConnection, where: str) -> None:
        if self._failures:
            failed_for = self._loop.time() - self._failing_since
            log.info("connected to %s%s again after %.1f s", self.name, where, failed_for)
        self._failures = 0
        self._connection = connection
        self._connected_at = self._last_used = self._loop.time()
        if not connection.is_open:  # lost between the handshake and this
            self._connection = None

    def _disconnected(self, connection: PeerConnection, reason: Exception) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        if not self._is_closed:
            log.info("the connection to %s ended: %s", self.name, _reason(reason))
            self._pump()

    def _recycle_if_idle(self) -> None:
        connection = self._connection
        if connection is None or len(connection):
            return
        now = self._loop.time()
        is_idle = now - self._last_used > self.settings.max_idle
        lifetime = connection.good_for
        if is_idle or (lifetime is not None and now - self._connected_at > lifetime * _OF_LIFETIME):
            self._connection = None
            connection.end(ConnectionAbortedError("idle" if is_idle else "its login ends soon"))


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
