"""The network that brokers and their clients use: listening and connecting, with asyncio's transports.

`SocketNetwork` is the operating system's; `simulation.network` simulates one in virtual time.
Both give ordinary asyncio transports, so a protocol is as fast as with the event loop's own methods.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from barnabas.base.environment.machine import machine_name, port_owner
from barnabas.base.system.sockets import claim_alone
from barnabas.base.tasks import start_task

P = TypeVar("P", bound=asyncio.BaseProtocol)

#: Makes the protocol of one connection.
ProtocolFactory = Callable[[], P]

_ANY_ADDRESS = "use 127.0.0.1 for this machine only, or 0.0.0.0 for all its addresses"


#: seconds in which a client must complete the TLS handshake
HANDSHAKE_SECONDS = 10.0


class BindError(OSError):
    """The address cannot be bound. The message has the reason and a hint."""


class Secured(Protocol):
    """A protocol with methods that the network calls before a TLS handshake has succeeded."""

    def arriving(self, host: str, give_up: Callable[[], object]) -> float | None:
        """Return how long the network must delay the TLS handshake of a new connection, in seconds.

        Return None to refuse the connection.

        Args:
            host: the IP address of the client.
            give_up: the protocol may call it, without arguments, to end the connection before
                `connection_made`. The network then calls `not_secured`.
        """

    def not_secured(self, error: BaseException) -> None:
        """Handle the end of an accepted connection whose TLS handshake did not finish because of `error`.

        The network calls no other method afterwards.
        """


class ServerSocket(Protocol):
    """A bound address. It accepts connections after `accept`."""

    @property
    def port(self) -> int:
        """Return the port that is bound, also if port 0 (any free port) was requested."""
        ...

    async def accept(
        self,
        protocol_factory: ProtocolFactory[asyncio.BaseProtocol],
        *,
        backlog: int,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """Start to accept connections, and return at once.

        Args:
            protocol_factory: makes the protocol of each connection. With `tls`, protocols must be `Secured`.
            backlog: number of connections that may wait to be accepted.
            tls: returns the TLS context of a connection; protocols get the decrypted data. The network calls
                `tls` for each connection, so that a new key applies to new connections.
        """
        ...

    def close(self) -> None:
        """Stop accepting connections, and release the address. Open connections stay."""
        ...


class Network(Protocol):
    """The network of one machine. Only the event loop's thread uses it."""

    def bind(self, host: str, port: int) -> ServerSocket:
        """Bind an address, and return its server socket.

        Args:
            host: a name or an address of this machine; empty for all addresses.
            port: the port number; 0 for any free port.

        Raises:
            BindError: the address cannot be bound.
        """
        ...

    async def connect(
        self, protocol_factory: ProtocolFactory[P], host: str, port: int, *, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.Transport, P]:
        """Open a connection; return its transport and protocol. There is no timeout: use `asyncio.timeout`.

        Args:
            protocol_factory: makes the protocol of the connection.
            tls: use TLS; the context decides whether to check the peer's certificate for `host`.

        Raises:
            OSError: the connection failed; `ConnectionRefusedError` if no server listens there.
        """
        ...

    def machine_name(self) -> str:
        """Return the name or address by which other machines can reach this one."""
        ...


def canonical_address(host: str) -> str:
    """Return an IP address in canonical form, and other text unchanged.

    A socket for IPv4 and IPv6 reports an IPv4 client as ::ffff:192.0.2.7. The canonical form is 192.0.2.7.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def set_buffer_sizes(transport: asyncio.BaseTransport, *, send: int, receive: int) -> None:
    """Set the sizes of the kernel's buffers for a connection, in bytes. -1 keeps a size.

    Does nothing if the transport has no socket.
    """
    sock = transport.get_extra_info("socket")
    if sock is None:
        return
    if send >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send)
    if receive >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)


def sendfile_descriptor(transport: asyncio.BaseTransport) -> int | None:
    """Return the descriptor of the socket for `sendfile`; None if the transport has no socket or uses TLS."""
    sock = transport.get_extra_info("socket")
    if sock is None or transport.get_extra_info("sslcontext") is not None:
        return None
    descriptor: int = sock.fileno()
    return descriptor


class SocketNetwork:
    """The operating system's network, as a `Network`.

    It binds addresses for servers (`bind`), opens connections (`connect`), and returns the name of this
    machine. Connections belong to the running event loop.
    """

    def bind(self, host: str, port: int) -> ServerSocket:
        sockets: list[socket.socket] = []
        try:
            found = socket.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_ADDRCONFIG
            )
            # A name may have several addresses (127.0.0.1 and ::1): all use the port of the first.
            taken = port
            for family, kind, proto, _, address in dict.fromkeys(found):
                sockets.append(_bind(family, kind, proto, address, taken, both=host == "::"))
                taken = sockets[0].getsockname()[1]
        except (OSError, UnicodeError) as error:
            for sock in sockets:
                sock.close()
            raise BindError(_explain(host, port, error)) from error
        return _ServerSockets(sockets)

    async def connect(
        self, protocol_factory: ProtocolFactory[P], host: str, port: int, *, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.Transport, P]:
        loop = asyncio.get_running_loop()
        try:
            return await loop.create_connection(protocol_factory, host, port, ssl=tls)
        except UnicodeError as error:  # idna cannot encode every text
            raise OSError(errno.EINVAL, f"{host!r} is not a host name") from error

    def machine_name(self) -> str:
        return machine_name()


#: the connection whose handshake the present task starts
_accepted: ContextVar[socket.socket | None] = ContextVar("_accepted", default=None)


class _HandshakeObject(ssl.SSLObject):
    outgoing: ssl.MemoryBIO
    #: None after the handshake
    connection: socket.socket | None

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if self.connection is not None:
                with suppress(OSError):
                    self.connection.send(self.outgoing.read())
                self.connection = None
            raise
        self.connection = None


class ListenerContext(ssl.SSLContext):
    """A TLS context of a listener, which tells clients why it ends a handshake.

    asyncio and uvloop do not send the alert of a failed handshake (RFC 8446, section 6). This context sends
    it on the socket that `_TlsAcceptor` has accepted. It uses no second descriptor: the limit of connections
    leaves the others to the logs.
    """

    sslobject_class = _HandshakeObject

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **options: Any) -> Any:
        wrapped = super().wrap_bio(incoming, outgoing, *args, **options)
        wrapped.outgoing = outgoing  # type: ignore[attr-defined]
        wrapped.connection = _accepted.get()  # type: ignore[attr-defined]
        return wrapped


class _TlsAcceptor:
    """Accepts the TLS connections of a socket.

    Before the handshake, it asks the protocol of the connection (`arriving`) whether to accept the
    connection. So the broker can limit the number of unfinished handshakes. With an asyncio server this is
    not possible: an asyncio server calls no method of the protocol until the handshake has ended.
    """

    def __init__(
        self,
        sock: socket.socket,
        protocol_factory: ProtocolFactory[asyncio.BaseProtocol],
        tls: Callable[[], ssl.SSLContext],
    ) -> None:
        self._socket = sock
        self._protocol_factory = protocol_factory
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        #: tasks of handshakes; nothing else refers to them
        self._under_way: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._pause = None
        self._loop.add_reader(self._socket, self._accept)

    def close(self) -> None:
        """Stop accepting; running handshakes continue."""
        self._loop.remove_reader(self._socket)
        if self._pause is not None:
            self._pause.cancel()

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_RESOURCES:
                    raise
                self._loop.remove_reader(self._socket)
                self._pause = self._loop.call_later(_RETRY_ACCEPT_SECONDS, self.start)
                return
            self._begin(connection, str(address[0]))

    def _begin(self, connection: socket.socket, host: str) -> None:
        connection.setblocking(False)
        protocol: Any = self._protocol_factory()
        task: asyncio.Task[None]
        wait = protocol.arriving(host, lambda: task.cancel())
        if wait is None:
            connection.close()
            return
        task = start_task(self._secure(connection, protocol, wait), "accepting a connection")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _secure(self, connection: socket.socket, protocol: Any, wait: float) -> None:
        taken = False
        _accepted.set(connection)
        try:
            if wait:
                await asyncio.sleep(wait)
            taken = True
            await self._loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=self._tls(), ssl_handshake_timeout=HANDSHAKE_SECONDS
            )
        except (Exception, asyncio.CancelledError) as error:
            if not taken:
                connection.close()
            protocol.not_secured(error)


_ACCEPTED_AT_ONCE = 50
_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_RETRY_ACCEPT_SECONDS = 1.0


class _ServerSockets:
    """The sockets of one host name, all on one port."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        self.port: int = sockets[0].getsockname()[1]
        self._sockets = sockets
        self._servers: list[asyncio.Server | _TlsAcceptor] = []

    async def accept(
        self,
        protocol_factory: ProtocolFactory[asyncio.BaseProtocol],
        *,
        backlog: int,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        for sock in self._sockets:
            if tls is None:
                self._servers.append(await loop.create_server(protocol_factory, sock=sock, backlog=backlog))
            else:
                sock.listen(backlog)
                acceptor = _TlsAcceptor(sock, protocol_factory, tls)
                acceptor.start()
                self._servers.append(acceptor)

    def close(self) -> None:
        for server in self._servers:
            server.close()
        for sock in self._sockets:
            sock.close()
        self._servers.clear()
        self._sockets.clear()


def _bind(
    family: int, kind: int, proto: int, address: tuple[Any, ...], port: int, *, both: bool
) -> socket.socket:
    """Return a socket that listens on `port`, at the host of the socket address `address`.

    `family`, `kind`, `proto` and `address` are from `socket.getaddrinfo`. On IPv6 the socket also accepts
    IPv4 connections if `both` is true, as Java's ``::`` does. Raises OSError.
    """
    sock = socket.socket(family, kind, proto)
    try:
        claim_alone(sock)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not both)
        sock.setblocking(False)
        sock.bind((address[0], port, *address[2:]))  # the rest is the zone of a link-local address
        # Listening already, so that a second broker on the port is refused at once.
        sock.listen(1)
    except OSError:
        sock.close()
        raise
    return sock


def _explain(host: str, port: int, error: OSError | UnicodeError) -> str:
    if isinstance(error, socket.gaierror | UnicodeError):  # idna cannot encode every text
        return f"{host} is not known as a host name here; {_ANY_ADDRESS}"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine; {_ANY_ADDRESS}"
    if error.errno == errno.EADDRINUSE:
        owner = port_owner(port)
        return f"the port is in use{f' by {owner}' if owner else ''}; stop that, or choose another port"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "permission denied; ports below 1024 are for root, choose a higher one"
    return error.strerror or str(error)
