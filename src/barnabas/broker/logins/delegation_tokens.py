"""Delegation tokens (KIP-48, KIP-373): a client that has one logs in as its owner until it expires.

The holder of a token logs in with SCRAM. The token's id is the user name, and the token's HMAC in base64 is
the password. The HMAC is computed from the id and the secret key of the cluster, and is never stored.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from functools import lru_cache
from typing import NamedTuple

from barnabas.kafka.security.principal import Principal

#: the most tokens of a cluster; the broker compares an HMAC with those of all tokens
MAX_TOKENS = 10_000
#: the most users that may renew one token
MAX_RENEWERS = 100


class TokenPrincipal(Principal):
    """The principal of a client that logged in with a delegation token.

    A `TokenPrincipal` equals the principal of the token's owner. A client that logged in with a token may not
    manage tokens. The broker recognizes such a client by this class.
    """

    __slots__ = ()


class DelegationToken(NamedTuple):
    """A delegation token, without its HMAC. Times are in milliseconds since the epoch."""

    id: str
    #: the user that the token's holder logs in as
    owner: Principal
    #: the user that created the token
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    #: no renewal moves `expires_ms` beyond this time
    max_ms: int
    expires_ms: int

    def has_expired(self, now_ms: int) -> bool:
        """Whether the token has expired at `now_ms`, so that it allows no more logins."""
        return min(self.max_ms, self.expires_ms) < now_ms

    def may_be_changed_by(self, principal: Principal) -> bool:
        """Whether a user may renew or expire the token: the owner and the renewers may."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: Principal) -> bool:
        """Whether a user may see the token without an ACL: the owner, the requester and the renewers may."""
        return principal == self.requester or self.may_be_changed_by(principal)


class TokenKeys:
    """Computes the HMACs of delegation tokens from the cluster's secret key.

    Args:
        secret: ``delegation.token.secret.key``, the same on all brokers.
    """

    def __init__(self, secret: str) -> None:
        key = secret.encode()
        self._hmac = lru_cache(2 * MAX_TOKENS)(
            lambda token_id: hmac.digest(key, token_id.encode(), hashlib.sha512)
        )

    def hmac(self, token_id: str) -> bytes:
        """Return the HMAC of a token's id: 64 bytes."""
        return self._hmac(token_id)

    def password(self, token_id: str) -> str:
        """Return the password of a token's holder: the HMAC in base64."""
        return base64.b64encode(self.hmac(token_id)).decode()

    def belongs(self, mac: bytes, token: DelegationToken) -> bool:
        """Whether `mac` is the HMAC of `token`. The comparison takes constant time."""
        return hmac.compare_digest(mac, self._hmac(token.id))
