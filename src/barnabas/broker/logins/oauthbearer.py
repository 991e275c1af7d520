"""The server's side of OAUTHBEARER (RFC 7628; KIP-255): the client sends a bearer token."""

from __future__ import annotations

import re

from barnabas.broker.logins.tokens import Tokens
from barnabas.kafka.security.errors import SaslError

#: RFC 7628, section 3.2.2
_REFUSAL = b'{"status":"invalid_token"}'
_FIRST = re.compile(r"[ny],(?:a=(?P<authzid>[^,\0\x01]+))?,\x01(?P<pairs>[^\0]*)\x01", re.DOTALL)
#: of SASL extensions (KIP-342)
_NAME = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")


class OauthbearerExchange:
    """Implements `Exchange` for OAUTHBEARER tokens. Like Kafka, the exchange ignores SASL extensions.

    Args:
        tokens: verifies the tokens of the listener.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._refused = ""
        self.user = ""
        self.is_complete = False
        self.token_id: str | None = None
        #: when the token expires, in milliseconds since the epoch
        self.expires_ms: int | None = None

    def respond(self, message: bytes) -> bytes:
        """Check the token in the client's message.

        If the token is valid, complete the login and return an empty answer. If the token is not valid,
        return an error in JSON.

        After such an error, SASL requires one more message from the client. The call for this message raises
        SaslError.

        Raises:
            SaslError: the previous call rejected the token, the message is malformed, or the client requests
                another user than the token's.
        """
        if self._refused:
            raise SaslError(self._refused)
        authzid, token = _parse(message)
        try:
            found = self._tokens.read(token)
        except SaslError as error:
            self._refused = str(error)
            return _REFUSAL
        self.user = found.user
        if authzid and authzid != found.user:
            raise SaslError("a client may only act for the user that its token names")
        self.expires_ms = found.expires_ms
        self.is_complete = True
        return b""


def _parse(message: bytes) -> tuple[str, str]:
    """Parse the client's message. Return the requested user (empty if there is none) and the token.

    Raises SaslError if the message is malformed.
    """
    try:
        first = _FIRST.fullmatch(message.decode())
    except UnicodeDecodeError:
        raise SaslError("the OAUTHBEARER message is not UTF-8") from None
    if first is None:
        raise SaslError("the OAUTHBEARER message is malformed")
    pairs: dict[str, str] = {}
    for pair in filter(None, first["pairs"].split("\x01")):
        name, _, value = pair.partition("=")
        if name in pairs or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise SaslError("the OAUTHBEARER message is malformed")
        pairs[name] = value
    scheme, _, token = pairs.get("auth", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise SaslError("the OAUTHBEARER message has no bearer token")
    authzid = (first["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return authzid, token.strip()
