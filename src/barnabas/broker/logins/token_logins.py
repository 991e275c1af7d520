"""Logins by delegation tokens (KIP-48)."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.base.environment.clock import Clock
from barnabas.broker.logins.delegation_tokens import TokenKeys
from barnabas.broker.logins.stored import StoredLogins


class TokenLogin(NamedTuple):
    """The data for a login with a token."""

    password: str
    #: as whom one logs in
    owner: str
    #: in milliseconds since the epoch
    expires_ms: int

    def __repr__(self) -> str:
        return f"TokenLogin(owner={self.owner!r}, expires_ms={self.expires_ms})"


class TokenLogins:
    """Finds the tokens that clients use. Any thread can call it.

    Args:
        keys: makes the HMACs of tokens.
        stored: has the present tokens.
        clock: clock that decides which tokens have expired.
    """

    def __init__(self, keys: TokenKeys, stored: StoredLogins, clock: Clock) -> None:
        self._keys = keys
        self._stored = stored
        self._clock = clock

    def find(self, token_id: str) -> TokenLogin | None:
        """Return the data for a login with a token; None if the token does not exist or has expired."""
        token = self._stored.delegation_tokens.get(token_id)
        if token is None or token.has_expired(self._clock.now_ms()):
            return None
        return TokenLogin(
            self._keys.password(token.id), token.owner.name, min(token.expires_ms, token.max_ms)
        )
