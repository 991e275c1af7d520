"""One connection to a peer. It sends requests, and receives the responses in the order of the requests."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from barnabas import __version__
from barnabas.base.errors import ErrorCode, ProtocolError
from barnabas.base.types import Buffer
from barnabas.broker.interbroker.login import PeerLogin, next_message
from barnabas.kafka.protocol.frame_buffer import FrameBuffer
from barnabas.kafka.protocol.framing import (
    RequestHeader,
    encode_request,
    parse_response,
    response_correlation_id,
)
from barnabas.kafka.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.kafka.protocol.schema import Request, Response
from barnabas.kafka.protocol.wire import Readable
from barnabas.kafka.security.errors import SaslError

#: the version of ApiVersions that every peer supports; it also answers unsupported versions in it (KIP-511)
_COMMON_VERSION = 0
#: position of the error code in an answer to ApiVersions: after the correlation id
_ERROR_CODE = slice(4, 6)
#: the name by which ApiVersions knows a broker of Barnabas
SOFTWARE_NAME = "barnabas"

#: Called with the answer, or with the error that makes all further answers impossible.
OnAnswer = Callable[[Any], None]


class EncodedRequest(Protocol):
    """A request that encodes itself, and decodes its usual responses, faster than the general codec."""

    @property
    def api_key(self) -> int: ...

    @property
    def versions(self) -> tuple[int, int]:
        """The lowest and the highest version in which the request can be sent."""

    def encode(self, correlation_id: int) -> bytes:
        """Return the frame, with its size in front."""

    def decode(self, frame: Readable) -> object | None:
        """Return the response in a frame; None for a response that the general codec must decode."""


class PendingRequest:
    """A request that was sent and has no response yet."""

    __slots__ = ("decode", "header", "on_answer", "size")

    def __init__(
        self,
        header: RequestHeader,
        size: int,
        on_answer: OnAnswer,
        decode: Callable[[Readable], object | None] | None = None,
    ) -> None:
        self.header = header
        #: decodes a usual response; None if the general codec decodes all
        self.decode = decode
        #: size of the request's frame in bytes
        self.size = size
        self.on_answer = on_answer


class PeerConnection(asyncio.BufferedProtocol):
    """One connection to a peer, as an asyncio protocol.

    Args:
        client_id: client id in each request.
        max_response_bytes: size of the largest response; a larger one ends the connection.
        on_room: called when data can be written again, after the write buffer was full.
        on_lost: called once, with this connection and the reason, when the connection has ended and its
            unanswered requests have failed.
    """

    def __init__(
        self,
        client_id: str,
        max_response_bytes: int,
        on_room: Callable[[], None],
        on_lost: Callable[[PeerConnection, Exception], None],
    ) -> None:
        self._client_id = client_id
        self._frames = FrameBuffer(max_response_bytes)
        self._on_room = on_room
        self._on_lost = on_lost
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._ids = itertools.count(1)
        self._unanswered: deque[PendingRequest] = deque()
        self._reason: Exception | None = None
        #: resolved when the connection has ended
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        #: by API key, the lowest and the highest version that the peer serves; empty before the handshake
        self.versions: dict[int, tuple[int, int]] = {}
        self.is_write_paused = False
        #: seconds for which the peer accepts the login, counted from the login; None for no limit
        self.good_for: float | None = None
        #: bytes of all unanswered requests
        self.unanswered_bytes = 0

    def __len__(self) -> int:
        """Return the number of unanswered requests."""
        return len(self._unanswered)

    @property
    def is_open(self) -> bool:
        return self._reason is None and self._transport is not None and not self._transport.is_closing()

    async def handshake(self) -> None:
        """Request the API versions of the peer, and store them in `versions`.

        Raises:
            ProtocolError: the peer answers with an error, or not in this protocol.
            OSError: the connection ended.
        """
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        response = await self._ask(request, request.versions[1])
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            response = await self._ask(request, _COMMON_VERSION)
        if response.error_code:
            raise ProtocolError(f"the peer answers ApiVersions by error {response.error_code}")
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    async def log_in(self, login: PeerLogin) -> None:
        """Log in to the peer, after the handshake.

        Raises:
            SaslError: the peer rejects the login, or cannot prove its identity.
            ProtocolError: the peer does not answer in this protocol.
            OSError: the connection ended.
        """
        offer = await self._call(SaslHandshakeRequest(mechanism=login.mechanism))
        if offer.error_code:
            has = ", ".join(offer.mechanisms) or "none"
            raise SaslError(f"it does not offer {login.mechanism} for brokers to log in by: it has {has}")
        exchange = login.begin()
        answer = None
        while (message := await next_message(login, exchange, answer)) is not None:
            response = await self._call(SaslAuthenticateRequest(auth_bytes=message))
            if response.error_code:
                raise SaslError(f"it rejects this broker's login by {login.mechanism}")
            answer = response.auth_bytes
            if response.session_lifetime_ms > 0:
                self.good_for = response.session_lifetime_ms / 1000

    async def _call(self, request: Request) -> Any:
        version = self.common_version(request, None)
        if version is None:
            raise ProtocolError("the peer supports no version of the SASL requests that this broker supports")
        return await self._ask(request, version)

    def common_version(self, request: Request | EncodedRequest, max_version: int | None) -> int | None:
        """Return the highest version of the request that both sides support; None if there is none.

        Args:
            request: the request to send.
            max_version: the result is not higher than this version; None for no such limit.
        """
        lowest, highest = self.versions.get(request.api_key, (0, -1))
        version = min(highest, request.versions[1])
        if max_version is not None:
            version = min(version, max_version)
        return version if version >= max(lowest, request.versions[0]) else None

    def send(self, request: Request | EncodedRequest, version: int, on_answer: OnAnswer) -> None:
        """Send a request after all earlier ones.

        Later, `on_answer` is called with the response or with an exception.

        Raises:
            ProtocolError: the request cannot be encoded; the connection does not change.
        """
        header = RequestHeader(request.api_key, version, next(self._ids) & 0x7FFFFFFF, self._client_id)
        if not isinstance(request, Request):
            frame = request.encode(header.correlation_id)
            self._unanswered.append(PendingRequest(header, len(frame), on_answer, request.decode))
            self.unanswered_bytes += len(frame)
            self._transport.write(frame)
            return
        chunks = [
            chunk if isinstance(chunk, Buffer) else bytes(chunk) for chunk in encode_request(header, request)
        ]
        unanswered = PendingRequest(header, sum(map(len, chunks)), on_answer)
        self._unanswered.append(unanswered)
        self.unanswered_bytes += unanswered.size
        self._transport.writelines(chunks)

    def end(self, reason: Exception) -> None:
        """End the connection now. The unanswered requests fail with `reason`."""
        if self._reason is None:
            self._reason = reason
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio's side ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        if self._reason is not None:
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.writable()

    def buffer_updated(self, nbytes: int) -> None:
        if self._reason is not None:
            return
        try:
            for frame in self._frames.received(nbytes):
                self._answered(frame)
        except ProtocolError as error:
            self.end(error)

    def eof_received(self) -> None:
        if self._reason is None:
            self._reason = ConnectionResetError("the peer has closed the connection")

    def pause_writing(self) -> None:
        self.is_write_paused = True

    def resume_writing(self) -> None:
        self.is_write_paused = False
        self._on_room()

    def connection_lost(self, exc: Exception | None) -> None:
        reason = self._reason or exc or ConnectionResetError("the connection was closed")
        self._reason = reason
        unanswered, self._unanswered = self._unanswered, deque()
        self.unanswered_bytes = 0
        if not self.lost.done():
            self.lost.set_result(None)
        for request in unanswered:
            request.on_answer(reason)
        self._on_lost(self, reason)

    # --- inside ---

    def _answered(self, frame: Readable) -> None:
        if not self._unanswered:
            raise ProtocolError("a response that belongs to no request")
        request = self._unanswered[0]
        response: Any = None
        if request.decode is not None and response_correlation_id(frame) == request.header.correlation_id:
            response = request.decode(frame)
        if response is None:
            response = _parse(request.header, frame)
        self._unanswered.popleft()
        self.unanswered_bytes -= request.size
        request.on_answer(response)

    async def _ask(self, request: Request, version: int) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def resolve(result: Response | Exception) -> None:
            if answer.done():
                return
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        self.send(request, version, resolve)
        return await answer


def _parse(header: RequestHeader, frame: Readable) -> Response:
    """Decode the response in `frame` to the request with `header`.

    Raises ProtocolError if the frame is malformed.
    """
    if header.api_key == ApiVersionsRequest.api_key:
        error = int.from_bytes(frame[_ERROR_CODE], "big", signed=True)
        if error == ErrorCode.UNSUPPORTED_VERSION:
            header = header._replace(api_version=_COMMON_VERSION)
    return parse_response(header, frame)
