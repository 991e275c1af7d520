"""Begins SASL logins (RFC 4422) with each mechanism, and finds the stored credentials for them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from functools import lru_cache
from random import Random
from types import MappingProxyType
from typing import Protocol

from barnabas.broker.logins.gssapi import GssapiExchange
from barnabas.broker.logins.oauthbearer import OauthbearerExchange
from barnabas.broker.logins.plain import PlainExchange, StoredPassword
from barnabas.broker.logins.stored import StoredLogins
from barnabas.broker.logins.token_logins import TokenLogins
from barnabas.broker.logins.tokens import Tokens
from barnabas.broker.logins.unknown_users import UnknownUsers
from barnabas.kafka.security.errors import InvalidCredential, SaslError
from barnabas.kafka.security.scram import (
    MECHANISMS,
    MIN_ITERATIONS,
    Mechanism,
    ScramCredential,
    ScramExchange,
    ShownToken,
    derive,
)

__all__ = ["Exchange", "Sasl", "SaslError"]

#: the number of cached credentials of delegation tokens: each takes milliseconds to derive
_MAX_DERIVED = 2_000


class Exchange(Protocol):
    """A login in progress, from the view of the broker. It processes the SASL messages of one client."""

    #: the user that the client claims to be
    user: str
    #: whether the client has proven that it is `user`
    is_complete: bool
    #: when the client's credential expires, in milliseconds since the epoch; None for never
    expires_ms: int | None
    #: the id of the delegation token that the client logs in with; None for other credentials
    token_id: str | None

    def respond(self, message: bytes) -> bytes:
        """Return the answer to the client's next message, and set `is_complete` if the login has succeeded.

        The call may take tens of milliseconds of CPU time.

        Raises:
            SaslError: the login has failed.
        """


class Sasl:
    """Begins logins with the mechanisms PLAIN, SCRAM, OAUTHBEARER and GSSAPI.

    Args:
        stored: the stored users, and the passwords in the settings of listeners. Several threads read it.
        random: generates nonces. Any thread can call it.
        secret: the secret of the cluster, the same on all brokers. Credentials of unknown users are computed
            from it.
        tokens: for each listener with OAUTHBEARER, the verifier of its tokens.
        delegation_tokens: finds the delegation tokens that clients use with SCRAM; None if they are disabled.
        begin_gssapi: for each listener with GSSAPI, a function without arguments that returns a new login
            with a Kerberos ticket.
    """

    def __init__(
        self,
        stored: StoredLogins,
        random: Random,
        secret: bytes,
        tokens: Mapping[str, Tokens] = MappingProxyType({}),
        delegation_tokens: TokenLogins | None = None,
        begin_gssapi: Mapping[str, Callable[[], GssapiExchange]] = MappingProxyType({}),
    ) -> None:
        self._begin_gssapi = begin_gssapi
        self._tokens = tokens
        self._stored = stored
        self._random = random
        self._unknown = UnknownUsers(secret, stored)
        self._delegation_tokens = delegation_tokens
        self._derive = lru_cache(_MAX_DERIVED)(derive)

    def begin(self, mechanism: str, listener: str = "") -> Exchange:
        """Begin a login.

        Args:
            mechanism: the SASL name of the mechanism, for example ``SCRAM-SHA-256``.
            listener: the name of the client's listener. PLAIN uses the passwords of this listener, and
                OAUTHBEARER and GSSAPI use its settings. SCRAM ignores the listener.

        Raises:
            KeyError: the mechanism is unknown; or it is OAUTHBEARER or GSSAPI, and the listener does not
                offer this mechanism.
        """
        if mechanism == "OAUTHBEARER":
            return OauthbearerExchange(self._tokens[listener])
        if mechanism == "GSSAPI":
            return self._begin_gssapi[listener]()
        if mechanism == "PLAIN":
            passwords = self._stored.passwords(listener)
            return PlainExchange(lambda user: self._password(user, passwords))
        scram = MECHANISMS[mechanism]
        nonce = base64.b64encode(self._random.randbytes(24)).decode()
        return ScramExchange(
            scram,
            lambda user: self._credential(scram, user),
            nonce=nonce,
            make_up=lambda user: self._unknown.credential(scram, user),
            find_token=lambda token_id: self._token(scram, token_id),
            make_up_token=lambda token_id: self._unknown.token_credential(scram, token_id),
        )

    def _credential(self, mechanism: Mechanism, user: str) -> ScramCredential | None:
        text = self._stored.users.get(user, {}).get(mechanism.text)
        try:
            return None if text is None else ScramCredential.decode(text)
        except InvalidCredential as error:
            raise SaslError(str(error)) from error

    def _token(self, mechanism: Mechanism, token_id: str) -> ShownToken | None:
        found = None if self._delegation_tokens is None else self._delegation_tokens.find(token_id)
        if found is None:
            return None
        salt = self._unknown.token_credential(mechanism, token_id).salt
        credential = self._derive(mechanism, found.password, salt, MIN_ITERATIONS)
        return ShownToken(credential, found.owner, found.expires_ms)

    def _password(self, user: str, passwords: Mapping[str, str]) -> StoredPassword:
        password = passwords.get(user)
        for mechanism in Mechanism:
            credential = self._credential(mechanism, user)
            if credential is not None:
                return StoredPassword(mechanism, credential, password=password)
        mechanism, credential = self._unknown.any_credential(user)
        return StoredPassword(mechanism, credential, is_known=False, password=password)
