"""The server's side of GSSAPI (RFC 4752): the client sends a Kerberos ticket for the broker's service."""

from __future__ import annotations

from typing import Protocol

from barnabas.broker.logins.kerberos import ShortNames
from barnabas.kafka.security.errors import SaslError

#: "no security layer", the only choice in Kafka: TLS protects the connection. The other three bytes are the
#: largest message of a security layer.
_NO_LAYER = b"\x01\x00\x00\x00"
#: messages until the ticket is accepted; Kerberos needs one, or two
_MAX_STEPS = 4


class Context(Protocol):
    """The broker's security context for one client (RFC 2743).

    Each method raises SaslError if the login fails.
    """

    @property
    def is_established(self) -> bool:
        """Whether the client's ticket was accepted."""

    @property
    def client(self) -> str:
        """The client's Kerberos principal. Available only when `is_established`."""

    def step(self, token: bytes) -> bytes:
        """Process a token of the client, and return the token to send back. The result can be empty."""

    def wrap(self, message: bytes) -> bytes:
        """Return `message` with a checksum that the client can verify."""

    def unwrap(self, message: bytes) -> bytes:
        """Return the content of a message that the client has wrapped, after a check of its checksum."""


class GssapiExchange:
    """A login with a Kerberos ticket (`Exchange`).

    Like Kafka, the exchange ignores the user that the client requests, because kafka-python sends the
    broker's name as this user.

    Args:
        context: the security context for the client.
        names: maps the client's Kerberos principal to the name of a user.
    """

    def __init__(self, context: Context, names: ShortNames) -> None:
        self._context = context
        self._names = names
        self._steps = 0
        self._is_offered = False
        self.user = ""
        self.is_complete = False
        self.token_id: str | None = None
        #: As in Kafka, the end of the ticket is not the end of the login: `connections.max.reauth.ms` is.
        self.expires_ms: int | None = None

    def respond(self, message: bytes) -> bytes:
        """Return the answer to the client's next message.

        The client's first messages have GSSAPI tokens. After the last token, the broker offers to use no
        security layer. The client's last message must accept this offer, and the answer to this message is
        empty.

        Raises:
            SaslError: the login has failed.
        """
        if not self._context.is_established:
            return self._accept(message)
        if not self._is_offered:  # the client has checked the broker's last token
            return self._offer()
        chosen = self._context.unwrap(message)
        if len(chosen) < len(_NO_LAYER) or not chosen[0] & _NO_LAYER[0]:
            raise SaslError("the client asks for a security layer of GSSAPI, and there is none: use TLS")
        principal = self._context.client
        user = self._names.of(principal)
        if user is None:
            raise SaslError(f"no rule of sasl.kerberos.principal.to.local.rules names {principal}")
        self.user = user
        self.is_complete = True
        return b""

    def _accept(self, token: bytes) -> bytes:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise SaslError(f"the ticket is not accepted after {_MAX_STEPS} messages")
        answer = self._context.step(token)
        if not self._context.is_established:
            return answer
        self.user = self._context.client  # until it has a shorter name
        return answer or self._offer()

    def _offer(self) -> bytes:
        self._is_offered = True
        return self._context.wrap(_NO_LAYER)
