"""The protocol bare, for what librdkafka does not ask or hand out: one connection, one request at a time."""

from __future__ import annotations

import itertools
import socket
import ssl
from types import TracebackType
from typing import Any, Protocol, Self

from barnabas.client.errors import AuthenticationError, ClientError, unreachable
from barnabas.errors import ProtocolError
from barnabas.protocol.framing import RequestHeader, encode_request, parse_response
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.schema import Request

#: the one version of ApiVersions that every broker answers
_COMMON = 0
_CLIENT_ID = "barnabas"
#: bytes; what begins with a larger size is no response
LARGEST_RESPONSE = 2**28


class NotKafkaError(ProtocolError):
    """What listens at the address answers in another protocol.

    Attributes:
        guess: in which, as the end of a sentence; empty where nothing is known.
    """

    def __init__(self, opening: bytes) -> None:
        self.guess = next((words for start, words in _PROTOCOLS.items() if opening.startswith(start)), "")
        super().__init__(f"it does not speak the Kafka protocol{self.guess}")


#: by how an answer begins
_PROTOCOLS = {
    b"HTTP": ": it answers like a web server (HTTP)",
    b"\x15\x03": ": it answers in TLS",
    b"\x16\x03": ": it answers in TLS",
    b"SSH-": ": it answers like an SSH server",
}


class Security(Protocol):
    """How a connection is made private, and for whom it is (`barnabas.client.security`)."""

    def wrap(self, plain: socket.socket, host: str) -> socket.socket:
        """The socket to talk over. Raises OSError as the system and TLS do."""
        ...

    def authenticate(self, connection: Connection) -> None:
        """Say who asks. Raises ClientError."""
        ...


class Connection:
    """A connection to one broker. Each request goes in the highest version that both sides know.

    Raises (also when used):
        ClientError: the broker does not answer in `timeout` seconds, or not in the protocol, or does not
            serve what is asked; no more can be asked then, but of another API.
        AuthenticationError: one side does not trust the other.
    """

    def __init__(
        self,
        host: str,
        port: int,
        timeout: float = 15.0,
        *,
        client_id: str = _CLIENT_ID,
        security: Security | None = None,
    ) -> None:
        self._address = f"{host}:{port}"
        self._client_id = client_id
        self._ids = itertools.count(1)
        self._asked: RequestHeader | None = None
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
        """HOST:PORT."""
        return self._address

    def fileno(self) -> int:
        """For a selector: readable when a response begins to arrive."""
        return self._socket.fileno()

    def ask(self, request: Request) -> Any:
        """The response."""
        self.send(request)
        return self.receive()

    def send(self, request: Request, *, at_most: int | None = None) -> None:
        """Send without waiting, in version `at_most` or lower; `receive` gives the response."""
        lowest, highest = self._versions.get(request.api_key, (0, -1))
        version = min(highest, request.versions[1] if at_most is None else at_most)
        if version < max(lowest, request.versions[0]):
            api = type(request).__name__.removesuffix("Request")
            raise ClientError(f"the broker at {self._address} does not serve {api}")
        self._send(request, version)

    def receive(self) -> Any:
        """The response to what was sent last."""
        asked, self._asked = self._asked, None
        assert asked is not None
        try:
            opening = self._read(4)
            size = int.from_bytes(opening, "big")
            if size > LARGEST_RESPONSE:
                raise NotKafkaError(bytes(opening))
            return parse_response(asked, self._read(size))
        except (OSError, ProtocolError) as error:
            raise self._no_answer(error) from error

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
            raise ClientError(f"no TLS with the broker at {self._address}: {error}") from error

    def _send(self, request: Request, version: int) -> None:
        self._asked = RequestHeader(request.api_key, version, next(self._ids), self._client_id)
        try:
            self._socket.sendall(b"".join(map(bytes, encode_request(self._asked, request))))
        except OSError as error:
            raise self._no_answer(error) from error

    def _no_answer(self, error: Exception) -> ClientError:
        return ClientError(f"the broker at {self._address} gives no answer: {error}")

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        rest = memoryview(data)
        while rest:
            received = self._socket.recv_into(rest)
            if not received:
                raise ConnectionError("the connection was closed")
            rest = rest[received:]
        return data
