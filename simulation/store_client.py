"""A client of a served metadata store, over a simulated network. It speaks the protocol of ZooKeeper.

Brokers use kazoo's client, which has threads of its own. This client has the same requests, sends them over
the simulated network, and says which writes have an unknown outcome.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

from kazoo.security import OPEN_ACL_UNSAFE

from barnabas.broker.metadata.server.wire import Code
from barnabas.broker.metadata.store import Operation
from barnabas.broker.metadata.zookeeper.requests import AddWatch, Multi, Request, acl_bytes, failure_in
from simulation.network import Host

_INT = struct.Struct("!i")
_HEADER = struct.Struct("!ii")
#: protocol version, last transaction seen, session timeout in ms, session id
_CONNECT = struct.Struct("!iqiq")
#: protocol version, session timeout in ms, session id
_CONNECTED = struct.Struct("!iiq")
#: xid, transaction, error
_REPLY = struct.Struct("!iqi")
_ACL = acl_bytes(OPEN_ACL_UNSAFE)
_EVENT_XID, _PING_XID, _PING = -1, -2, 11
#: of a session, the share after which a client without other requests sends a ping
_PINGS_A_TIMEOUT = 3


class Lost(ConnectionError):
    """The connection has ended before the answer: the outcome of a write is unknown."""


class Refused(Exception):
    """The server has refused a request. `code` is ZooKeeper's error code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"error {code}")
        self.code = code


class StoreSession:
    """A session, and its connections one after the other.

    Args:
        host: the client's machine.
        server: host name of the server.
        port: port of the server.
        timeout: session timeout in seconds.
        on_event: called with the path of each node that changes, while the connection has a watch.
    """

    def __init__(
        self, host: Host, server: str, port: int, timeout: float, on_event: Callable[[str], object]
    ) -> None:
        self._host = host
        self._server = server
        self._port = port
        self._timeout = timeout
        self._on_event = on_event
        #: 0 before the first connection, and after the session has ended
        self.id = 0
        self._password = bytes(16)
        self._connection: _Connection | None = None

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and not self._connection.ended.done()

    async def connect(self) -> bool:
        """Open a connection that watches all nodes. Return False if a new session was begun for it.

        Raises:
            OSError: the server does not answer.
        """
        async with asyncio.timeout(self._timeout):
            _, connection = await self._host.connect(
                lambda: _Connection(self._on_event), self._server, self._port
            )
            try:
                before = self.id
                found = await connection.begin(round(self._timeout * 1000), before, self._password)
                if found is None:
                    self.id, self._password = 0, bytes(16)
                    raise Lost("the session has ended")
                self.id, self._password = found
                await connection.ask(AddWatch("/", ""))
            except BaseException:
                connection.close()
                raise
        self._connection = connection
        connection.keep_alive(self._timeout / _PINGS_A_TIMEOUT)
        return before != 0

    def close(self) -> None:
        """Close the connection. The session ends after its timeout."""
        if self._connection is not None:
            self._connection.close()

    async def ask(self, request: Request) -> Any:
        """Send a request, and return its answer.

        Raises:
            Lost: the connection has ended.
            Refused: the server has refused the request.
        """
        if self._connection is None:
            raise Lost("there is no connection")
        try:
            async with asyncio.timeout(self._timeout):
                return await self._connection.ask(request)
        except TimeoutError:
            self._connection.close()
            raise Lost("no answer in time") from None

    async def write(self, *operations: Operation) -> list[int]:
        """Apply a transaction, and return the versions of its nodes. Raises as `ask`."""
        answer = await self.ask(Multi(operations, "", lambda path: _ACL))
        failure = failure_in(answer)
        if failure is not None:
            raise Refused(getattr(failure.error, "code", Code.SYSTEM_ERROR))
        return list(answer)


class _Connection(asyncio.Protocol):
    def __init__(self, on_event: Callable[[str], object]) -> None:
        self._on_event = on_event
        self._received = bytearray()
        self._xid = 0
        self._transport: asyncio.Transport
        self._begun: asyncio.Future[tuple[int, bytes] | None] = asyncio.get_running_loop().create_future()
        self._waiting: dict[int, tuple[Request, asyncio.Future[Any]]] = {}
        self._pinging: asyncio.TimerHandle | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            (length,) = _INT.unpack_from(self._received)
            if len(self._received) < 4 + length:
                return
            frame = bytes(self._received[4 : 4 + length])
            del self._received[: 4 + length]
            self._take(frame)

    def connection_lost(self, _: Exception | None) -> None:
        if self._pinging is not None:
            self._pinging.cancel()
        waiting, self._waiting = self._waiting, {}
        for _request, future in waiting.values():
            if not future.done():
                future.set_exception(Lost("the connection has ended"))
        if not self._begun.done():
            self._begun.set_exception(Lost("the connection has ended"))
        if not self.ended.done():
            self.ended.set_result(None)

    async def begin(self, timeout_ms: int, session: int, password: bytes) -> tuple[int, bytes] | None:
        """Begin or resume a session. Return its id and password; None if it has ended."""
        self._send(_CONNECT.pack(0, 0, timeout_ms, session), _buffer(password), b"\0")
        return await self._begun

    async def ask(self, request: Request) -> Any:
        if self.ended.done() or self._transport.is_closing():
            raise Lost("the connection has ended")
        self._xid += 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[self._xid] = request, future
        self._send(_HEADER.pack(self._xid, request.type), request.serialize())
        return await future

    def keep_alive(self, seconds: float) -> None:
        """Send a ping now, and again every `seconds`."""
        if not self._transport.is_closing():
            self._send(_HEADER.pack(_PING_XID, _PING))
            self._pinging = asyncio.get_running_loop().call_later(seconds, self.keep_alive, seconds)

    def close(self) -> None:
        self._transport.abort()

    def _take(self, frame: bytes) -> None:
        if not self._begun.done():
            _, timeout_ms, session = _CONNECTED.unpack_from(frame)
            password = frame[_CONNECTED.size + 4 : _CONNECTED.size + 20]
            self._begun.set_result((session, password) if timeout_ms else None)
            return
        xid, _, error = _REPLY.unpack_from(frame)
        if xid == _EVENT_XID:
            start = _REPLY.size + _HEADER.size
            (length,) = _INT.unpack_from(frame, start)
            self._on_event(frame[start + 4 : start + 4 + length].decode())
        elif xid in self._waiting:
            request, future = self._waiting.pop(xid)
            if future.done():  # the caller has stopped waiting
                return
            if error:
                future.set_exception(Refused(error))
            else:
                future.set_result(request.deserialize(frame, _REPLY.size))

    def _send(self, *parts: bytes) -> None:
        self._transport.write(_INT.pack(sum(map(len, parts))) + b"".join(parts))


def _buffer(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data
