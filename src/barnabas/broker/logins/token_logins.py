"""Finds the password and the owner of a delegation token, for a login with this token (KIP-48)."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.base.environment.clock import Clock
from barnabas.broker.logins.delegation_tokens import TokenKeys
from barnabas.broker.logins.stored import StoredLogins


class TokenLogin(NamedTuple):
    """The password of a valid delegation token, the user that it logs in, and the time when it expires."""

    password: str
    #: the user that the client logs in as
    owner: str
    #: when the token expires, in milliseconds since the epoch
    expires_ms: int

    def __repr__(self) -> str:
        return f"TokenLogin(owner={self.owner!r}, expires_ms={self.expires_ms})"


class TokenLogins:
    """Finds the delegation tokens that clients log in with. Any thread can call `find`.

    Args:
        keys: computes the tokens' HMACs, which are their passwords.
        stored: has the current tokens.
        clock: its time decides which tokens have expired.
    """

    def __init__(self, keys: TokenKeys, stored: StoredLogins, clock: Clock) -> None:
        self._keys = keys
        self._stored = stored
        self._clock = clock

    def find(self, token_id: str) -> TokenLogin | None:
        """Return the data for a login with the token `token_id`.

        Return None if the token does not exist or has expired.
        """
        token = self._stored.delegation_tokens.get(token_id)
        if token is None or token.has_expired(self._clock.now_ms()):
            return None
        return TokenLogin(
            self._keys.password(token.id), token.owner.name, min(token.expires_ms, token.max_ms)
        )
