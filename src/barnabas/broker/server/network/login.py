"""SASL logins on connections (KIP-43, KIP-152, KIP-368).

Before its login, a client can send only ApiVersions and SASL requests.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

from barnabas.base.environment.blocking import Blocking
from barnabas.base.errors import ErrorCode, ProtocolError
from barnabas.base.text import logger_of, shown
from barnabas.broker.logins.delegation_tokens import TokenPrincipal
from barnabas.broker.logins.sasl import Exchange, Sasl
from barnabas.broker.server.auditing.trail import LOGIN, LOGIN_FAILED, AuditTrail
from barnabas.broker.server.requests.context import Chunks, Client
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.framing import RequestHeader, encode_response, parse_request
from barnabas.kafka.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.kafka.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from barnabas.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.kafka.protocol.wire import Readable
from barnabas.kafka.security.errors import SaslError
from barnabas.kafka.security.principal import Principal, check_name

log = logger_of(__name__)

_KEY = struct.Struct(">h")
_SIZE = struct.Struct(">i")
#: error message of every failed login, which gives the client no reason
_REFUSAL = "Authentication failed: the credentials are invalid"


class LoginClient(Client, Protocol):
    """A connection on which a client logs in."""

    def logged_in(self, principal: Principal, serve: Callable[[Readable, LoginClient], None]) -> None:
        """Set the client's principal after its login. From now on, `serve` handles its requests."""


Serve: TypeAlias = Callable[[Readable, LoginClient], None]


class _Outcome(NamedTuple):
    """The response to one message of a login. If `failure` is set, the broker then closes the connection."""

    chunks: Chunks
    failure: str | None = None


class Logins:
    """Handles the logins on listeners with SASL.

    Args:
        view: settings and clock of the broker.
        sasl: checks the messages of clients.
        serve: handles the requests of clients that have logged in, and every ApiVersions request.
        blocking: provides one thread, which only checks messages of logins. When there are many logins, they
            delay each other, but they do not delay the requests of clients that have logged in.
        trail: the audit log.
    """

    def __init__(
        self, view: BrokerView, sasl: Sasl, serve: Serve, blocking: Blocking, trail: AuditTrail
    ) -> None:
        self.view = view
        self.sasl = sasl
        self.serve = serve
        self.trail = trail
        self.thread = blocking.pool("logins", 1)

    def begin(self, listener: str) -> Login:
        """Return the object that handles the logins on a new connection to the listener with this name."""
        return Login(self, listener)

    def stop(self) -> None:
        """Start no more checks of messages. A check that is running can complete."""
        self.thread.abandon()


class Login:
    """The logins on one connection. If a login expires, the client must log in again (KIP-368)."""

    def __init__(self, logins: Logins, listener: str) -> None:
        self._logins = logins
        self._listener = listener
        self._mechanism = ""
        self._exchange: Exchange | None = None
        #: whether frames are bare messages of the mechanism, without a header (SaslHandshake v0)
        self._is_bare = False
        #: principal of the earlier login on this connection; later logins must have the same one
        self._principal: Principal | None = None
        #: time at which the login expires, in seconds of the event loop
        self._ends = 0.0

    def serve(self, frame: Readable, client: LoginClient) -> None:
        """Handle a request, or a bare SASL message, of a client that has not logged in.

        Reply through `client`, at once or when a thread has checked the message.

        Raises:
            ProtocolError: the client may not send this request before its login. The caller must close the
                connection.
        """
        if self._is_bare and self._exchange is not None:
            self._respond_later(client, None, bytes(frame))
            return
        key = _api_key(frame)
        if key == ApiVersionsRequest.api_key and self._exchange is None:
            self._logins.serve(frame, client)
            return
        if key not in (
            SaslHandshakeRequest.api_key,
            SaslAuthenticateRequest.api_key,
        ):  # nothing else is decoded
            raise ProtocolError(f"a request with API key {key} before the client has logged in by SASL")
        header, request = parse_request(frame)
        if isinstance(request, SaslHandshakeRequest) and self._exchange is None:
            client.reply(encode_response(header, self._shake_hands(header, request)))
        elif isinstance(request, SaslAuthenticateRequest) and self._exchange is not None:
            self._respond_later(client, header, request.auth_bytes)
        else:
            raise ProtocolError(f"{type(request).__name__} before the client has logged in by SASL")

    def serve_again(self, frame: Readable, client: LoginClient) -> None:
        """Handle a request of a client whose login has a time limit (KIP-368).

        SaslHandshake begins the next login, and `serve` handles all requests until it is complete.

        Raises:
            ProtocolError: the login has expired, and the client has not begun the next one. Or a request of
                the next login is not allowed (`serve`).
        """
        key = _api_key(frame)
        if key == SaslHandshakeRequest.api_key or self._exchange is not None:
            self.serve(frame, client)
        elif asyncio.get_running_loop().time() > self._ends:
            raise ProtocolError(f"the login of {client.principal} has ended, and it did not log in again")
        else:
            self._logins.serve(frame, client)

    def _shake_hands(self, header: RequestHeader, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
        offered = list(self._logins.view.config.for_listener(self._listener).sasl_enabled_mechanisms)
        if request.mechanism not in offered:
            return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=offered)
        self._mechanism = request.mechanism
        self._exchange = self._logins.sasl.begin(request.mechanism, self._listener)
        self._is_bare = header.api_version == 0
        return SaslHandshakeResponse(mechanisms=offered)

    def _respond_later(self, client: LoginClient, header: RequestHeader | None, message: bytes) -> None:
        answer = asyncio.ensure_future(self._respond(client, header, message))
        client.park(answer, partial(_finish, client), True)

    async def _respond(self, client: LoginClient, header: RequestHeader | None, message: bytes) -> _Outcome:
        exchange = self._exchange
        assert exchange is not None
        try:
            answer = await self._logins.thread.run(exchange.respond, bytes(message))
            lifetime_ms = self._complete(client, exchange) if exchange.is_complete else 0
        except SaslError as error:
            return await self._fail(client, header, exchange, error)
        if header is None:
            return _Outcome([_SIZE.pack(len(answer)) + answer])
        response = SaslAuthenticateResponse(
            error_message=None, auth_bytes=answer, session_lifetime_ms=lifetime_ms
        )
        return _Outcome(encode_response(header, response))

    def _complete(self, client: LoginClient, exchange: Exchange) -> int:
        """Complete the login, and record it in the audit log.

        Return the lifetime of the login in ms; 0 means no limit. `exchange` is the exchange of SASL messages,
        which has succeeded.

        Raises:
            SaslError: the user name is not allowed, or differs from the user name of the connection's earlier
                login.
        """
        try:
            check_name(exchange.user)
        except ValueError as error:
            raise SaslError(str(error)) from None
        kind = Principal if exchange.token_id is None else TokenPrincipal
        principal = kind(exchange.user)
        if self._principal not in (None, principal):
            raise SaslError(f"it logged in as {self._principal} before, and cannot log in as another user")
        self._principal = principal
        self._exchange = None
        lifetime_ms = self._lifetime_ms(exchange)
        self._ends = asyncio.get_running_loop().time() + lifetime_ms / 1000
        client.logged_in(principal, self.serve_again if lifetime_ms else self._logins.serve)
        shown_token = {} if exchange.token_id is None else {"token": exchange.token_id}
        self._logins.trail.note(LOGIN, client, mechanism=self._mechanism, **shown_token)
        return lifetime_ms

    def _lifetime_ms(self, exchange: Exchange) -> int:
        """Return the lifetime of a login in milliseconds; 0 means no limit (KIP-368).

        A login ends after ``connections.max.reauth.ms``, or when its token expires, whichever comes first.
        """
        config = self._logins.view.config.for_listener(self._listener, self._mechanism)
        max_ms = config.connections_max_reauth_ms
        if exchange.expires_ms is None:
            return max_ms
        left = max(
            1, exchange.expires_ms - self._logins.view.clock.now_ms()
        )  # 0 would mean that it never ends
        return min(left, max_ms) if max_ms else left

    async def _fail(
        self, client: LoginClient, header: RequestHeader | None, exchange: Exchange, error: SaslError
    ) -> _Outcome:
        self._logins.trail.note(
            LOGIN_FAILED, client, user=shown(exchange.user), mechanism=self._mechanism, reason=shown(error)
        )
        await asyncio.sleep(self._logins.view.config.connection_failed_authentication_delay_ms / 1000)
        user = f" of {shown(exchange.user)}" if exchange.user else ""
        reason = f"the login{user} by {self._mechanism} has failed: {error}"
        if header is None:
            return _Outcome([], reason)
        response = SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=_REFUSAL
        )
        return _Outcome(encode_response(header, response), reason)


def _api_key(frame: Readable) -> int:
    if len(frame) < _KEY.size:
        raise ProtocolError(f"a request of {len(frame)} bytes has no whole header")
    key: int = _KEY.unpack_from(frame)[0]
    return key


def _finish(client: LoginClient, done: asyncio.Future[_Outcome]) -> Chunks | None:
    error = done.exception()
    if error is not None:
        log.error("a login failed", exc_info=error)
        client.close("its login could not be checked")
        return None
    chunks, failure = done.result()
    if failure is not None:  # once the answer is on its way
        asyncio.get_running_loop().call_soon(client.close, failure)
    return chunks
