"""Delegation tokens, with which another client logs in as a user for some time (KIP-48, KIP-373).

The holder of a token logs in with SCRAM: the token's id is the user name, and its HMAC in base64 is the
password. The HMAC is computed from the id and the secret key of the cluster, and is never stored.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from functools import lru_cache
from typing import NamedTuple

from barnabas.kafka.security.principal import Principal

#: how many tokens there may be; it bounds the search for one by its HMAC
MOST_TOKENS = 10_000
#: how many users may renew one token
MOST_RENEWERS = 100


class TokenPrincipal(Principal):
    """A user who has logged in with a delegation token. It equals the user, but may not manage tokens."""

    __slots__ = ()


class DelegationToken(NamedTuple):
    """A token. Times are in milliseconds since the epoch."""

    id: str
    #: as whom one logs in by it
    owner: Principal
    #: who has created it
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    #: it is never valid for longer
    max_ms: int
    expires_ms: int

    def has_expired(self, now_ms: int) -> bool:
        """Whether the token allows no more logins."""
        return min(self.max_ms, self.expires_ms) < now_ms

    def may_be_changed_by(self, principal: Principal) -> bool:
        """Whether a user may renew and expire it."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: Principal) -> bool:
        """Whether a user can always see it."""
        return principal == self.requester or self.may_be_changed_by(principal)


class TokenKeys:
    """Makes the HMACs of tokens.

    Args:
        secret: ``delegation.token.secret.key``, the same on all brokers.
    """

    def __init__(self, secret: str) -> None:
        key = secret.encode()
        self._hmac = lru_cache(2 * MOST_TOKENS)(
            lambda token_id: hmac.digest(key, token_id.encode(), hashlib.sha512)
        )

    def hmac(self, token_id: str) -> bytes:
        """Return the HMAC of a token's id: 64 bytes."""
        return self._hmac(token_id)

    def password(self, token_id: str) -> str:
        """Return the password of a token's holder."""
        return base64.b64encode(self.hmac(token_id)).decode()

    def belongs(self, mac: bytes, token: DelegationToken) -> bool:
        """Whether `mac` is a token's HMAC."""
        return hmac.compare_digest(mac, self._hmac(token.id))
