"""The server's side of PLAIN (RFC 4616): user and password in plain text, for connections with TLS."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import NamedTuple

from barnabas.kafka.security.errors import SaslError
from barnabas.kafka.security.scram import Mechanism, ScramCredential, derive

#: the longest user and password, in bytes: what is derived from them costs time
MOST_BYTES = 1024


class StoredPassword(NamedTuple):
    """Decides whether a user's password is correct."""

    #: what a password is derived to: for one user always the same work
    mechanism: Mechanism
    credential: ScramCredential
    #: whether `credential` is that of a user
    is_known: bool = True
    #: the password itself, if that decides
    password: str | None = None


class PlainExchange:
    """A login with PLAIN, checked against the stored SCRAM credentials of the user.

    `respond` takes as long as deriving a key, also for users who do not exist. Call it in a thread.

    Args:
        find: returns the object that checks a user's password, even if the user does not exist.
    """

    def __init__(self, find: Callable[[str], StoredPassword]) -> None:
        self._find = find
        self.user = ""
        self.is_complete = False
        self.token_id: str | None = None
        self.expires_ms: int | None = None

    def respond(self, message: bytes) -> bytes:
        """Check the client's only message. The answer is empty.

        Raises:
            SaslError: the login has failed.
        """
        parts = message.split(b"\0")
        if len(parts) != 3 or not parts[1] or not parts[2] or len(message) > MOST_BYTES:
            raise SaslError("the PLAIN message is malformed")
        try:
            authzid, user, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            raise SaslError("the PLAIN message is not UTF-8") from None
        self.user = user
        if authzid and authzid != user:
            raise SaslError("a client may only act for the user that it logs in as")
        if not _fits(password, self._find(user)):
            raise SaslError("the credentials are invalid")
        self.is_complete = True
        return b""


def _fits(password: str, stored: StoredPassword) -> bool:
    """Whether a password is correct. It takes the same time even if the password is stored as plain text."""
    credential = stored.credential
    derived = derive(stored.mechanism, password, credential.salt, credential.iterations)
    is_derived = hmac.compare_digest(derived.stored_key, credential.stored_key) and stored.is_known
    is_itself = hmac.compare_digest(_digest(password), _digest(stored.password or ""))
    return is_derived if stored.password is None else is_itself


def _digest(password: str) -> bytes:
    """Return a hash, because a comparison of texts with different lengths would end early."""
    return hashlib.sha256(password.encode()).digest()
