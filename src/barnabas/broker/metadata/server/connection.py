"""A client's connection to the store's server: its requests in their order, and its watches."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias, cast

from barnabas.base.tasks import start_task
from barnabas.base.text import logger_of
from barnabas.broker.metadata.durable_tree import DurableTree, Transaction
from barnabas.broker.metadata.server import wire
from barnabas.broker.metadata.server.sessions import ServerSession, SessionTracker
from barnabas.broker.metadata.server.wire import Code, Opcode, ProtocolError, Reader
from barnabas.broker.metadata.session import Watches
from barnabas.broker.metadata.store import Cancel, Event, Operation, StoreError
from barnabas.broker.metadata.tree import ROOT, Tree, parent_of

log = logger_of(__name__)

#: bytes of a request: ZooKeeper's own bound, ``jute.maxbuffer``
MAX_FRAME = 1 << 20
#: the most queued requests of a connection; at this number the server stops reading from it
_MAX_QUEUED = 64
#: the most bytes that a client may leave unread; at more, the server disconnects the client
MAX_UNREAD = 16 << 20
#: the most paths that one connection can watch
_MAX_WATCHES = 1000
#: seconds within which a client must send its first request
_GREETING = 10.0

_Read: TypeAlias = Callable[[Tree], bytes]


class Server(Protocol):
    """The interface of the store's server, for its connections."""

    tree: DurableTree
    sessions: SessionTracker
    watches: Watches

    def opened(self, connection: ServerConnection) -> bool:
        """Register a new connection. Return False if there are too many."""

    def closed(self, connection: ServerConnection) -> None: ...

    def has_pending_events(self, connection: ServerConnection) -> None:
        """Record that the connection has events. The server then calls `ServerConnection.send_events`."""


class _Write(NamedTuple):
    transaction: Transaction
    operations: Sequence[Operation]


class _Close(NamedTuple):
    pass


class ServerConnection(asyncio.Protocol):
    """A client's connection to the metadata store.

    The server answers a client's requests in order. Only pings are answered out of order, so that the session
    stays alive even if the disk is slow. Writes of several clients can share an fsync.

    If the client watches a node that changes, it gets the event of the change before any response that shows
    the change. This includes the response to the client's own write.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._transport: asyncio.Transport
        self._received = bytearray()
        self._session: ServerSession | None = None
        self._queue: deque[tuple[int, _Write | _Read | _Close]] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._greeting: asyncio.TimerHandle | None = None
        self._is_read = True
        #: set while the transport takes more bytes
        self._writable = asyncio.Event()
        self._writable.set()
        self._watched: dict[str, Cancel] = {}
        self._events: list[bytes] = []

    # -- asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not derive from it
        if not self._server.opened(self):
            self.abort()
            return
        self._greeting = asyncio.get_running_loop().call_later(_GREETING, self.abort)

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            while not self._transport.is_closing() and (frame := self._next_frame()) is not None:
                self._handle_frame(frame)
        except ProtocolError as error:
            log.error("a client of the metadata store is disconnected: %s", error)
            self.abort()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, _: Exception | None) -> None:
        self._server.closed(self)
        for cancel in self._watched.values():
            cancel()
        self._watched.clear()
        self._queue.clear()
        if self._greeting is not None:
            self._greeting.cancel()
        if self._worker is not None:
            self._worker.cancel()
        if self._session is not None and self._session.connection is self:
            self._session.connection = None

    def abort(self) -> None:
        """Close the connection at once. Requests that were not read are lost."""
        self._received.clear()
        self._transport.abort()

    # -- requests

    def _next_frame(self) -> bytes | None:
        received = self._received
        if len(received) < 4:
            return None
        length = int.from_bytes(received[:4], signed=True)
        if not 0 <= length <= MAX_FRAME:
            raise ProtocolError(f"a request has {length} bytes: at most {MAX_FRAME} are allowed")
        if len(received) < 4 + length:
            return None
        frame = bytes(memoryview(received)[4 : 4 + length])
        del received[: 4 + length]
        return frame

    def _handle_frame(self, frame: bytes) -> None:
        reader = Reader(frame)
        if self._session is None:
            self._connect(reader)
            return
        if self._session.has_ended:
            self.abort()
            return
        self._server.sessions.heard(self._session)
        xid, opcode = reader.header()
        if opcode in (Opcode.PING, Opcode.AUTH):  # the socket's folder lets the broker's user in alone
            self._send(wire.reply(xid, self._server.tree.transaction))
        elif opcode == Opcode.MULTI:
            operations = reader.operations()
            try:
                transaction = self._server.tree.submit(operations, self._session.id)
            except StoreError:  # the server is closing
                self.abort()
                return
            transaction.done.add_done_callback(_take_error)  # the connection may be lost before
            self._enqueue(xid, _Write(transaction, operations))
        elif opcode == Opcode.CLOSE:
            self._enqueue(xid, _Close())
        else:
            self._enqueue(xid, self._read_of(opcode, reader))

    def _read_of(self, opcode: int, reader: Reader) -> _Read:
        if opcode == Opcode.MULTI_READ:
            paths = reader.paths_to_read()
            return lambda tree: wire.multi_read_body([tree.find(each) for each in paths])
        path = reader.path()
        if opcode == Opcode.GET:
            return lambda tree: wire.node_body(tree.get(path))
        if opcode == Opcode.CHILDREN:
            return lambda tree: wire.names_body(tree.children(path))
        if opcode == Opcode.SYNC:
            return lambda tree: wire.path_body(path)
        if opcode == Opcode.ADD_WATCH and reader.watch_mode():
            return lambda tree: self._watch(path)
        raise ProtocolError(f"the request {opcode} is not known")

    def _connect(self, reader: Reader) -> None:
        request = reader.connect()
        sessions = self._server.sessions
        if request.session_id:
            session = sessions.resume(request.session_id, request.password)
        else:
            session = sessions.begin(request.timeout_ms / 1000)
        if session is None:
            self._transport.write(wire.ended(request))
            self._transport.close()
            return
        if self._greeting is not None:
            self._greeting.cancel()
        self._session = session
        session.connection = self
        self._send(wire.connected(request, round(session.timeout * 1000), session.id, session.password))

    def _enqueue(self, xid: int, request: _Write | _Read | _Close) -> None:
        self._queue.append((xid, request))
        if self._worker is None:
            self._worker = start_task(self._answer_queued(), "store connection")
        if len(self._queue) >= _MAX_QUEUED and self._is_read:
            self._is_read = False
            self._transport.pause_reading()

    async def _answer_queued(self) -> None:
        try:
            while self._queue:
                await self._writable.wait()
                xid, request = self._queue.popleft()
                if not self._is_read:
                    self._is_read = True
                    self._transport.resume_reading()
                if isinstance(request, _Close):
                    await self._close(xid)
                    return
                await self._answer(xid, request)
        except BaseException:  # a bug, which is reported, or the connection is lost already
            self.abort()
            raise
        finally:
            self._worker = None

    async def _answer(self, xid: int, request: _Write | _Read) -> None:
        tree = self._server.tree
        code, body = Code.OK, b""
        try:
            if isinstance(request, _Write):
                body = wire.multi_body(request.operations, await request.transaction.done)
            else:
                async with tree.reading() as settled:
                    body = request(settled)
        except (StoreError, ValueError) as error:
            code = wire.code_of(error)
            if isinstance(request, _Write) and code is not Code.SYSTEM_ERROR:
                failed = len(request.transaction.versions)
                body, code = wire.failed_multi_body(len(request.operations), failed, code), Code.OK
        self._send(wire.reply(xid, tree.transaction, body, code))

    async def _close(self, xid: int) -> None:
        assert self._session is not None
        await self._server.sessions.end(self._session)
        self._send(wire.reply(xid, self._server.tree.transaction))
        self._transport.close()

    # -- watches

    def _watch(self, path: str) -> bytes:
        above = path
        while above not in self._watched:
            if above == ROOT:
                break
            above = parent_of(above)
        else:
            return b""  # one above it reports its changes, too
        if len(self._watched) >= _MAX_WATCHES:
            raise ValueError("there are too many watches")
        below = path if path == ROOT else f"{path}/"
        for watched in [each for each in self._watched if each.startswith(below)]:
            self._watched.pop(watched)()
        self._watched[path] = self._server.watches.add(path, self._node_changed)
        return b""

    def _node_changed(self, event: Event, path: str) -> None:
        if not self._events:
            self._server.has_pending_events(self)
        self._events.append(wire.event(event, path))

    def send_events(self) -> None:
        """Send the client the watch events that have collected since the last call."""
        events, self._events = self._events, []
        self._send(b"".join(events))

    def _send(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > MAX_UNREAD:
            log.error("a client of the metadata store does not read its responses: it is disconnected")
            self.abort()


def _take_error(done: asyncio.Future[list[int]]) -> None:
    """Read the exception of a future, because asyncio reports it if no code awaits the future."""
    if not done.cancelled():
        done.exception()
