"""The server's side of PLAIN (RFC 4616): user and password as they are, for connections over TLS."""

from __future__ import annotations

import hmac
from collections.abc import Callable

from barnabas.security.errors import SaslError
from barnabas.security.scram import Mechanism, ScramCredential, derive, made_up

#: the longest user and password, in bytes: what is derived from them costs time
MOST_BYTES = 1024


class PlainExchange:
    """One login by PLAIN, checked against what SCRAM has stored of the password.

    `respond` takes as long as deriving a key does, for users who do not exist, too: call it in a thread.

    Args:
        find: a user's credential and for which variant of SCRAM it is, None when there is none.
        secret: what the credentials of those who do not exist are made with.
    """

    def __init__(
        self, find: Callable[[str], tuple[Mechanism, ScramCredential] | None], *, secret: bytes
    ) -> None:
        self._find = find
        self._secret = secret
        self.user = ""
        self.is_complete = False
        self.token_id: str | None = None
        self.expires_ms: int | None = None

    def respond(self, message: bytes) -> bytes:
        """The answer to the client's only message, which is empty.

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
        found = self._find(user)
        mechanism, credential = found or (
            Mechanism.SCRAM_SHA_256,
            made_up(Mechanism.SCRAM_SHA_256, user, self._secret),
        )
        derived = derive(mechanism, password, credential.salt, credential.iterations)
        is_proven = hmac.compare_digest(derived.stored_key, credential.stored_key)
        if not is_proven or found is None:
            raise SaslError("the credentials are invalid")
        self.is_complete = True
        return b""
