"""The server's side of PLAIN (RFC 4616): user and password in plain text, for connections with TLS."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import NamedTuple

from barnabas.kafka.security.errors import SaslError
from barnabas.kafka.security.scram import Mechanism, ScramCredential, derive

#: the longest PLAIN message, in bytes: deriving a key from a longer password would take more time
MAX_BYTES = 1024


class StoredPassword(NamedTuple):
    """The stored data with which PLAIN compares a user's password."""

    #: the SCRAM mechanism of `credential`; a key is always derived with it, so that each check takes as long
    mechanism: Mechanism
    credential: ScramCredential
    #: whether `credential` is that of a user
    is_known: bool = True
    #: the password in plain text, from the listener's settings. If it is set, only it is compared
    password: str | None = None


class PlainExchange:
    """Implements `Exchange` for PLAIN: compares the client's password with the stored data of the user.

    `respond` derives a key from the password, also for users who do not exist. This takes milliseconds, so
    call `respond` in a thread.

    Args:
        find: called with a user's name, in the thread that calls `respond`; returns the stored data for the
            user's password. For a user without a password, it returns computed data that match no password.
    """

    def __init__(self, find: Callable[[str], StoredPassword]) -> None:
        self._find = find
        self.user = ""
        self.is_complete = False
        self.token_id: str | None = None
        self.expires_ms: int | None = None

    def respond(self, message: bytes) -> bytes:
        """Check the client's only message, and return an empty answer.

        Raises:
            SaslError: the message is malformed, the user is unknown, the password is wrong, or the client
                requests another user.
        """
        parts = message.split(b"\0")
        if len(parts) != 3 or not parts[1] or not parts[2] or len(message) > MAX_BYTES:
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
    """Whether `password` is the password from which the user's stored data `stored` was made.

    The result is False for an unknown user, whose data was computed (`is_known` is False). Every check takes
    the same time: for a plain text password, for a derived key and for an unknown user.
    """
    credential = stored.credential
    derived = derive(stored.mechanism, password, credential.salt, credential.iterations)
    is_derived = hmac.compare_digest(derived.stored_key, credential.stored_key) and stored.is_known
    is_itself = hmac.compare_digest(_digest(password), _digest(stored.password or ""))
    return is_derived if stored.password is None else is_itself


def _digest(password: str) -> bytes:
    """Return a hash of a password. Equal lengths of hashes keep the length of the stored password secret."""
    return hashlib.sha256(password.encode()).digest()
