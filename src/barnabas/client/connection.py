"""A client that sends raw protocol requests, one at a time, on one connection."""

from __future__ import annotations

import itertools
import selectors
import socket
import ssl
import struct
import time
from typing import Any, Protocol, Self

from barnabas.base.errors import ProtocolError
from barnabas.client.errors import AuthenticationError, ClientError, unreachable
from barnabas.client.repeated import MAX_RESPONSE, Repeated
from barnabas.kafka.protocol.framing import (
    RequestHeader,
    encode_request,
    parse_response,
    response_correlation_id,
)
from barnabas.kafka.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.kafka.protocol.schema import Request

#: the one version of ApiVersions that every broker answers
_COMMON = 0
#: our client.id if the caller gives none
CLIENT_ID = "barnabas"


class UnservedError(ClientError):
    """A broker does not serve an API, or only unknown versions of it."""


class NotKafkaError(ProtocolError):
    """The server at the address uses another protocol.

    Attributes:
        guess: end of the error's text that names the other protocol, such as ": it answers in TLS"; empty if
            the protocol is unknown.
    """

    def __init__(self, opening: bytes) -> None:
        self.guess = next((words for start, words in _PROTOCOLS.items() if opening.startswith(start)), "")
        super().__init__(f"it does not speak the Kafka protocol{self.guess}")


#: names of other protocols, by the first bytes of their servers' answers
_PROTOCOLS = {
    b"HTTP": ": it answers like a web server (HTTP)",
    b"\x15\x03": ": it answers in TLS",
    b"\x16\x03": ": it answers in TLS",
    b"SSH-": ": it answers like an SSH server",
}


class Security(Protocol):
    """The encryption and the login of a connection (`barnabas.client.security`)."""

    def wrap(self, plain: socket.socket, host: str) -> socket.socket:
        """Return the socket to use for the connected socket `plain`, encrypted if TLS is on.

        `host` is the broker's name, which TLS compares with the certificate unless that check is off.
        Raises OSError if the handshake fails.
        """
        ...

    def authenticate(self, connection: BrokerConnection) -> None:
        """Log in to the broker, if a login is configured. Raises ClientError if the login fails."""
        ...


#: `PollSelector` has no limit for file descriptors, but Windows does not have it
_Selector: type[selectors.BaseSelector] = getattr(selectors, "PollSelector", selectors.SelectSelector)
_CORRELATION_ID = struct.Struct(">i")
#: seconds for a piece of an answer whose time is over: with 0, the socket would not block at all
_MIN_S = 0.001
#: position of the correlation id in a request: after the size, the API key and the API version
_IN_REQUEST = 8


class BrokerConnection:
    """A connection to one broker. Each request has the highest version that both sides support.

    The constructor connects and, with `security`, makes the TLS handshake and logs in.

    Args:
        timeout: seconds for the connection, for each request, and for each answer.
        security: encryption and login; None for neither.

    Raises (the constructor and the methods that send or receive):
        ClientError: the broker refuses the connection, needs more than `timeout` seconds, or answers wrongly.
            The connection cannot be used any more.
        UnservedError: the broker does not serve the API of the request.
        AuthenticationError: the client rejects the broker, or the broker rejects the client.
    """

    def __init__(
        self,
        host: str,
        port: int,
        timeout: float = 15.0,
        *,
        client_id: str = CLIENT_ID,
        security: Security | None = None,
    ) -> None:
        self._address = f"{host}:{port}"
        self._client_id = client_id
        self._timeout = timeout
        self._ids = itertools.count(1)
        #: the header of the last request, and the request if it is a repeated one
        self._asked: tuple[RequestHeader, Repeated | None]
        try:
            self._socket = socket.create_connection((host, port), timeout)
        except OSError as error:
            raise unreachable(self._address) from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security is not None:
                self._secure(security, host)
            self._send(ApiVersionsRequest(), _COMMON)
            served = self.receive()
            self._versions = {api.api_key: (api.min_version, api.max_version) for api in served.api_keys}
            if security is not None:
                security.authenticate(self)
        except ClientError:
            self.close()
            raise

    @property
    def address(self) -> str:
        """The broker's address, HOST:PORT."""
        return self._address

    def fileno(self) -> int:
        """Return the file descriptor for a selector. It is readable when a response begins to arrive."""
        return self._socket.fileno()

    def wait_for(self, timeout: float) -> None:
        """Set the time limit to `timeout` seconds, for each later request and for each later answer."""
        self._timeout = timeout
        self._socket.settimeout(timeout)

    def ask(self, request: Request | Repeated, *, max_version: int | None = None) -> Any:
        """Send a request in version `max_version` or lower, and return the response.

        If `max_version` is None, the request has the highest version that both sides support. For an
        unchanged response to a `Repeated` request, the method returns the same object as the last time.
        """
        self.send(request, max_version=max_version)
        return self.receive()

    def send(self, request: Request | Repeated, *, max_version: int | None = None) -> None:
        """Send a request in version `max_version` or lower without waiting. `receive` returns the response.

        If `max_version` is None, the request has the highest version that both sides support. Call `receive`
        before the next request. The bytes of a `Repeated` request are encoded only once.
        """
        if isinstance(request, Repeated):
            self._send_again(request, max_version)
        else:
            self._send(request, self._version(request, max_version))

    def receive(self) -> Any:
        """Wait for the response to the request that `send` has sent, and return it.

        Raises:
            ClientError: the broker does not answer in time, closes the connection, or answers wrongly.
        """
        asked, repeated = self._asked
        try:
            frame = self._receive()
            if repeated is None:
                return parse_response(asked, frame)
            encoded = frame[_CORRELATION_ID.size :]
            if encoded != repeated.encoded or response_correlation_id(frame) != asked.correlation_id:
                repeated.answer = parse_response(asked, frame)
                repeated.encoded = encoded
        except (OSError, ProtocolError) as error:
            raise self._no_answer(error) from error
        return repeated.answer

    def is_usable(self) -> bool:
        """Whether an idle connection is still open: the broker has neither sent bytes nor closed it."""
        with _Selector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            return not selector.select(0)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _secure(self, security: Security, host: str) -> None:
        try:
            self._socket = security.wrap(self._socket, host)
        except ssl.SSLCertVerificationError as error:
            reason = error.verify_message or error
            raise AuthenticationError(
                f"the certificate of the broker at {self._address} is not trusted: {reason}"
            ) from error
        except OSError as error:
            raise ClientError(
                f"the TLS handshake with the broker at {self._address} failed: {error}"
            ) from error

    def _version(self, request: Request, max_version: int | None = None) -> int:
        lowest, highest = self._versions.get(request.api_key, (0, -1))
        version: int = min(highest, request.versions[1] if max_version is None else max_version)
        if version < max(lowest, request.versions[0]):
            api = type(request).__name__.removesuffix("Request")
            raise UnservedError(f"the broker at {self._address} does not serve {api}")
        return version

    def _header(self, request: Request, version: int) -> RequestHeader:
        return RequestHeader(request.api_key, version, next(self._ids), self._client_id)

    def _send(self, request: Request, version: int) -> None:
        header = self._header(request, version)
        self._asked = header, None
        self._send_frame(_encoded(header, request))

    def _send_again(self, repeated: Repeated, max_version: int | None) -> None:
        if repeated.connection is not self:
            version = self._version(repeated.request, max_version)
            if version != repeated.version:
                repeated.version, repeated.encoded = version, bytearray()
            header = self._header(repeated.request, repeated.version)
            repeated.frame = bytearray(_encoded(header, repeated.request))
            repeated.connection = self
        header = self._header(repeated.request, repeated.version)
        self._asked = header, repeated
        _CORRELATION_ID.pack_into(repeated.frame, _IN_REQUEST, header.correlation_id)
        self._send_frame(repeated.frame)

    def _send_frame(self, frame: bytes | bytearray) -> None:
        try:
            self._socket.sendall(frame)
        except OSError as error:
            raise self._no_answer(error) from error

    def _receive(self) -> bytearray:
        """Return a response frame, without its size.

        Raises:
            OSError: the frame does not arrive in time, or the connection is closed.
            NotKafkaError: the size is too large for a frame of Kafka.
        """
        deadline = time.monotonic() + self._timeout
        try:
            size = int.from_bytes(opening := self._read(4, deadline), "big")
            if size > MAX_RESPONSE:
                raise NotKafkaError(bytes(opening))
            return self._read(size, deadline)
        finally:
            self._socket.settimeout(self._timeout)

    def _no_answer(self, error: Exception) -> ClientError:
        return ClientError(f"the broker at {self._address} does not answer: {error}")

    def _read(self, size: int, deadline: float) -> bytearray:
        data = bytearray(size)
        rest = memoryview(data)
        while rest:
            self._socket.settimeout(max(deadline - time.monotonic(), _MIN_S))
            received = self._socket.recv_into(rest)
            if not received:
                raise ConnectionError("the connection was closed")
            rest = rest[received:]
        return data


def _encoded(header: RequestHeader, request: Request) -> bytes:
    return b"".join(map(bytes, encode_request(header, request)))
