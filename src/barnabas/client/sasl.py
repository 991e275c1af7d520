"""The client's side of OAUTHBEARER (RFC 7628, KIP-255), and the sources of its tokens."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping

from barnabas.base.environment.clock import SystemClock
from barnabas.client.errors import AuthenticationError
from barnabas.kafka.security.sasl_client import ClientExchange

_TOKEN_TIMEOUT_S = 10.0


def oauthbearer(token: Callable[[], str], extensions: Mapping[str, str]) -> ClientExchange:
    """Yield the client's messages of a login by OAUTHBEARER.

    The caller sends the broker's answer to each message into the generator. An empty answer ends the login.
    Any other answer is a refusal. RFC 7628 then requires one more message, which the generator yields.

    Args:
        token: returns a bearer token; called when the login begins.
        extensions: the values of SASL extensions (KIP-342), by name.
    """
    pairs = {"auth": f"Bearer {token()}", **extensions}
    refusal = (
        yield b"n,,\x01" + b"".join(f"{key}={value}\x01".encode() for key, value in pairs.items()) + b"\x01"
    )
    if refusal:
        yield b"\x01"  # as RFC 7628 asks; the broker says then that it fails


def token_of_client(
    endpoint: str, client_id: str, client_secret: str, scope: str, tls: ssl.SSLContext
) -> str:
    """Request a token with a client's credentials (OAuth 2.0, RFC 6749 section 4.4; KIP-768), and return it.

    `scope` is the scope of the token; empty to request none. `tls` is used if the endpoint's URL is https.

    Raises:
        AuthenticationError: the endpoint does not answer, refuses the credentials, or returns no token.
    """
    form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
    credentials = base64.b64encode(f"{client_id}:{client_secret}".encode()).decode()
    request = urllib.request.Request(
        endpoint,
        urllib.parse.urlencode(form).encode(),
        {"Authorization": f"Basic {credentials}", "Accept": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=_TOKEN_TIMEOUT_S, context=tls) as response:
            token: str = json.load(response)["access_token"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AuthenticationError(f"{endpoint} returned no token: {error}") from error
    return token


def unsecured_token(claims: Mapping[str, object], seconds: int) -> str:
    """Return an unsigned JWT with `claims`, for tests only. It expires `seconds` seconds from now."""
    now = SystemClock().now_ms() // 1000
    parts = ({"alg": "none"}, {**claims, "iat": now, "exp": now + seconds})
    return "".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() + "." for part in parts
    )
