"""A blocking connection to a broker, which uses the codecs of Barnabas."""

from __future__ import annotations

import itertools
import socket
from typing import TypeVar

from barnabas.kafka.protocol.framing import RequestHeader, encode_request, parse_response
from barnabas.kafka.protocol.schema import Request, Response

#: the versions that librdkafka 2.16 speaks, or the last that knows one group or names topics, by the API's
#: number
VERSIONS = {0: 7, 1: 12, 2: 7, 3: 12, 8: 8, 9: 7, 10: 2, 19: 5, 20: 5}
SECONDS = 120.0

R = TypeVar("R", bound=Response)


class Connection:
    """A connection that sends a request and waits for its answer.

    Raises:
        OSError: the broker sends nothing for `SECONDS`.
    """

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=SECONDS)
        self._file = self._socket.makefile("rb")
        self._ids = itertools.count(1)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def send(self, request: Request) -> RequestHeader:
        header = RequestHeader(request.api_key, VERSIONS[request.api_key], next(self._ids), "bench")
        self._socket.sendall(b"".join(map(bytes, encode_request(header, request))))
        return header

    def receive(self, header: RequestHeader, answer: type[R]) -> R:
        size = int.from_bytes(self._file.read(4), "big")
        response = parse_response(header, self._file.read(size))
        assert isinstance(response, answer)
        return response

    def ask(self, request: Request, answer: type[R]) -> R:
        """Send a request and return its answer."""
        return self.receive(self.send(request), answer)
