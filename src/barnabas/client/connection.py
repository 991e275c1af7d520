"""The protocol bare, for what librdkafka's clients do not ask: one connection, one request at a time."""

from __future__ import annotations

import itertools
import socket
from types import TracebackType
from typing import Any, Self

from barnabas.client.errors import ClientError, unreachable
from barnabas.errors import ProtocolError
from barnabas.protocol.framing import RequestHeader, encode_request, parse_response
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.schema import Request

#: the one version of ApiVersions that every broker answers
_COMMON = 0
_CLIENT_ID = "barnabas"


class Connection:
    """A connection to one broker. Each request goes in the highest version that both sides know.

    Raises (also when used):
        ClientError: the broker does not answer in `timeout` seconds, or not in the protocol, or does not
            serve what is asked.
    """

    def __init__(self, host: str, port: int, timeout: float = 15.0) -> None:
        self._address = f"{host}:{port}"
        self._ids = itertools.count(1)
        try:
            self._socket = socket.create_connection((host, port), timeout)
        except OSError as error:
            raise unreachable(self._address) from error
        try:
            served = self._exchange(ApiVersionsRequest(), _COMMON)
        except ClientError:
            self.close()
            raise
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in served.api_keys}

    def ask(self, request: Request) -> Any:
        """The response."""
        lowest, highest = self._versions.get(request.api_key, (0, -1))
        version = min(highest, request.versions[1])
        if version < max(lowest, request.versions[0]):
            api = type(request).__name__.removesuffix("Request")
            raise ClientError(f"the broker at {self._address} does not serve {api}")
        return self._exchange(request, version)

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

    def _exchange(self, request: Request, version: int) -> Any:
        header = RequestHeader(request.api_key, version, next(self._ids), _CLIENT_ID)
        try:
            self._socket.sendall(b"".join(map(bytes, encode_request(header, request))))
            return parse_response(header, self._read(int.from_bytes(self._read(4), "big")))
        except (OSError, ProtocolError) as error:
            raise ClientError(f"the broker at {self._address} gives no answer: {error}") from error

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the connection was closed")
            data += part
        return bytes(data)
