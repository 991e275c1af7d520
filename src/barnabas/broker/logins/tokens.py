"""Verifies OAUTHBEARER tokens that an identity provider has signed (JWT, RFC 7519; KIP-768).

`joserfc`, which checks signatures, is imported when it is needed, because most brokers have no OAUTHBEARER. A
token's claims about its own key (``jku``, ``x5u``, ``jwk``, ``x5c``) are ignored.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from barnabas.base.errors import ConfigError
from barnabas.kafka.security.errors import SaslError

if TYPE_CHECKING:
    from joserfc.jwk import Key

#: accepted algorithms by key type (RFC 7517). Neither ``none`` nor HMAC, whose secret clients would have, too
ALGORITHMS: Mapping[str, tuple[str, ...]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
}
_KEY_TYPES = {name: kind for kind, names in ALGORITHMS.items() for name in names}
#: the longest token, in characters
MAX_CHARACTERS = 65_536
_MAX_KEYS = 200
#: the most keys tried for a token without a key id
_MAX_TRIED = 8
_MAX_NAME = 1024


class Token(NamedTuple):
    """The claims of a valid token that the broker uses."""

    user: str
    #: when the token expires, in milliseconds since the epoch
    expires_ms: int
    scopes: tuple[str, ...] = ()


class TokenRules(NamedTuple):
    """The rules for a token's claims. `SignedTokens` checks the signature.

    If `issuer` is None, the claim ``iss`` is not checked. If `audiences` is empty, ``aud`` is not checked.
    """

    issuer: str | None
    audiences: tuple[str, ...]
    clock_skew_s: int = 30
    user_claim: str = "sub"
    scope_claim: str = "scope"

    def check(self, claims: Mapping[str, Any], now_ms: int) -> Token:
        """Check the claims of a token, and return the claims that the broker uses.

        This method does not check the token's signature. `now_ms` is the present time, in milliseconds since
        1970.

        Raises:
            SaslError: a claim is missing or invalid, the token has another issuer or audience than this
                broker expects, or it has expired or is not valid yet.
        """
        now = now_ms / 1000
        expiry = _time(claims, "exp")
        if expiry is None:
            raise SaslError("the token has no exp")
        if now >= expiry + self.clock_skew_s:
            raise SaslError(f"the token has expired {now - expiry:.0f} s ago")
        begin = _time(claims, "nbf")
        if begin is not None and now < begin - self.clock_skew_s:
            raise SaslError(f"the token is valid from {begin - now:.0f} s on")
        _time(claims, "iat")
        if self.issuer is not None and claims.get("iss") != self.issuer:
            raise SaslError("the token's issuer is not sasl.oauthbearer.expected.issuer")
        if self.audiences and not {*_strings(claims, "aud")} & {*self.audiences}:
            raise SaslError("the token's audience does not contain sasl.oauthbearer.expected.audience")
        user = claims.get(self.user_claim)
        if not isinstance(user, str) or not user.strip() or len(user) > _MAX_NAME:
            raise SaslError(f"the token's {self.user_claim} names no user")
        scopes = _strings(claims, self.scope_claim)
        return Token(user.strip(), math.floor(expiry * 1000), scopes)


class Tokens(Protocol):
    """Verifies the tokens of one listener."""

    def read(self, token: str) -> Token:
        """Verify the signature and the claims of a token, and return the claims.

        This may take a millisecond of CPU time.

        Raises:
            SaslError: the token is not valid. The error's text never contains the token.
        """
        ...


class SignedTokens:
    """Verifies tokens that one of the identity provider's keys has signed.

    Args:
        rules: the rules for the claims.
        keys: returns the provider's current keys. `read` calls this function, `on_unknown_key` and `now_ms`
            in its own thread.
        on_unknown_key: called without arguments when no key fits a token: the provider may have a new key.
            The token is rejected.
        now_ms: returns the time, in milliseconds since the epoch.
    """

    def __init__(
        self,
        rules: TokenRules,
        keys: Callable[[], Sequence[Key]],
        on_unknown_key: Callable[[], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._rules = rules
        self._keys = keys
        self._on_unknown_key = on_unknown_key
        self._now_ms = now_ms

    def read(self, token: str) -> Token:
        from joserfc import jws
        from joserfc.errors import JoseError

        header, _ = _parts(token)
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in _KEY_TYPES:
            raise SaslError(
                "the token's alg is not allowed: use RS256, ES256 or another RSA or elliptic-curve signature"
            )
        fitting = [key for key in self._keys() if _fits(key, header.get("kid"), algorithm)]
        if not fitting:
            self._on_unknown_key()
            raise SaslError(
                "no key of the identity provider matches the token; the broker has requested the keys again"
            )
        registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
        registry.max_header_length = MAX_CHARACTERS
        for key in fitting[:_MAX_TRIED]:
            try:
                checked = jws.deserialize_compact(token, key, registry=registry)
                return self._rules.check(_json_object(checked.payload), self._now_ms())
            except (JoseError, ValueError, TypeError):
                continue
        raise SaslError("the token's signature is invalid")


class UnsignedTokens:
    """Accepts unsigned tokens, which any client can make: for experiments on one machine only."""

    def __init__(self, rules: TokenRules, now_ms: Callable[[], int]) -> None:
        self._rules = rules
        self._now_ms = now_ms

    def read(self, token: str) -> Token:
        header, payload = _parts(token)
        if header.get("alg") != "none" or not token.endswith("."):
            raise SaslError("the token is signed, and this broker has no keys to check it")
        return self._rules.check(payload, self._now_ms())


def parse_keys(document: bytes) -> list[Key]:
    """Return the keys in a JWKS document (RFC 7517, section 5) that can verify tokens.

    Skip all other keys, and all entries after the first `_MAX_KEYS`.

    Raises:
        ConfigError: the document is not a JWKS, or has no such key.
    """
    from joserfc.errors import JoseError
    from joserfc.jwk import JWKRegistry

    try:
        found = json.loads(document)
    except (ValueError, RecursionError):
        raise ConfigError("it is not JSON") from None
    entries = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(entries, list):
        raise ConfigError('it is not a JWKS: {"keys": [...]}')
    keys = []
    for entry in entries[:_MAX_KEYS]:
        if isinstance(entry, dict) and entry.get("kty") in ALGORITHMS and entry.get("use", "sig") == "sig":
            try:
                keys.append(JWKRegistry.import_key(entry))
            except (JoseError, ValueError, TypeError, KeyError):
                continue
    if not keys:
        raise ConfigError(f"it has no key of {' or '.join(ALGORITHMS)} that signs")
    return keys


def _fits(key: Key, key_id: object, algorithm: str) -> bool:
    return (
        key.key_type == _KEY_TYPES[algorithm]
        and key.get("alg") in (None, algorithm)
        and (key_id is None or key.kid == key_id)
    )


def _parts(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a token's header and payload without verifying them. Raises SaslError if the token is no JWT."""
    parts = token.split(".", 3)
    if len(parts) != 3 or len(token) > MAX_CHARACTERS:
        raise SaslError("the token is no JWT")
    try:
        return _json_object(_base64url(parts[0])), _json_object(_base64url(parts[1]))
    except ValueError:
        raise SaslError("the token is no JWT") from None


def _base64url(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _json_object(text: bytes | None) -> dict[str, Any]:
    """Parse a JSON object. Raises ValueError for any other text."""
    try:
        found = json.loads(text or b"")
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    """Return the claim `name` as a time, in seconds since the epoch.

    Return None if the token does not have this claim.

    Raises SaslError if the claim is not a time.
    """
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise SaslError(f"the token's {name} is not a time")
    return float(value)


def _strings(claims: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the strings in the claim `name`; an empty tuple if the token does not have this claim.

    Raises SaslError if the claim is neither a string nor a list of strings.
    """
    value = claims.get(name, ())
    found = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value
    if not isinstance(found, tuple) or not all(isinstance(each, str) for each in found):
        raise SaslError(f"the token's {name} is neither a string nor a list of strings")
    return found
