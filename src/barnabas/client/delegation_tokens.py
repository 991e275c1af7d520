"""Requests about delegation tokens, which librdkafka does not support (KIP-48).

In each function, `servers` are the addresses of brokers, and `timeout` is the time limit in seconds.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple

from barnabas.client.brokers import ask_once
from barnabas.client.errors import ClientError, check_code
from barnabas.kafka.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from barnabas.kafka.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenRequest,
)
from barnabas.kafka.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.kafka.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest

_USER = "User"


class TokenListing(NamedTuple):
    """A delegation token, without its password. Times are in milliseconds since 1970.

    `id` is the name with which a client logs in.

    Attributes:
        owner: user as whom a client with the token logs in.
        requester: user who has created the token.
        renewers: users who can renew the token, in addition to its owner.
        expires_ms: time at which the token expires unless it is renewed.
        max_ms: time after which no renewal is possible.
    """

    id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    expires_ms: int
    max_ms: int


class NewToken(NamedTuple):
    """A new delegation token, with which a client logs in by SCRAM.

    Attributes:
        id: the name for the login.
        password: the HMAC of the token in base64, as the password for the login.
        owner: user as whom a client with the token logs in.
        expires_ms: time at which the token expires unless it is renewed, in milliseconds since 1970.
        max_ms: time after which no renewal is possible, in milliseconds since 1970.
    """

    id: str
    password: str
    owner: str
    expires_ms: int
    max_ms: int

    def __repr__(self) -> str:
        return f"NewToken(id={self.id!r}, ...)"


def create_token(
    servers: str, timeout: float, *, owner: str | None, renewers: Sequence[str], max_lifetime_ms: int
) -> NewToken:
    """Create a token.

    Args:
        servers: addresses of brokers (``host:port,...``).
        timeout: time limit in seconds.
        owner: user as whom a client with the token logs in; None for the user who sends this request.
        renewers: users who can renew and expire the token, in addition to the owner.
        max_lifetime_ms: longest lifetime in milliseconds, with all renewals; -1 for the longest that the
            broker allows.

    Raises:
        KafkaError: the broker rejected the request. ClientError: no broker answers.
    """
    request = CreateDelegationTokenRequest(
        renewers=[CreatableRenewers(principal_type=_USER, principal_name=name) for name in renewers],
        max_lifetime_ms=max_lifetime_ms,
    )
    if owner is not None:
        request.owner_principal_type, request.owner_principal_name = _USER, owner
    answer = _asked(servers, timeout, request)
    return NewToken(
        answer.token_id,
        base64.b64encode(answer.hmac).decode(),
        answer.principal_name,
        answer.expiry_timestamp_ms,
        answer.max_timestamp_ms,
    )


def list_tokens(servers: str, timeout: float) -> list[TokenListing]:
    """Return the tokens that the user may see, without their passwords.

    `servers` are the addresses of brokers (``host:port,...``); `timeout` is the time limit in seconds.

    Raises:
        KafkaError: the broker rejected the request. ClientError: no broker answers.
    """
    return [
        TokenListing(
            token.token_id,
            token.principal_name,
            token.token_requester_principal_name,
            tuple(renewer.principal_name for renewer in token.renewers),
            token.expiry_timestamp,
            token.max_timestamp,
        )
        for token in _described(servers, timeout)
    ]


def renew_token(servers: str, timeout: float, token_id: str, period_ms: int) -> int:
    """Set the expiry of a token to `period_ms` from now; -1 means the broker's default period.

    Return the new expiry in ms since 1970. `servers` are the addresses of brokers (``host:port,...``), and
    `timeout` is the time limit in seconds.

    Raises:
        KafkaError: the broker rejected the request. ClientError: no broker answers, or the user sees no such
            token.
    """
    mac = _hmac(servers, timeout, token_id)
    answer = _asked(servers, timeout, RenewDelegationTokenRequest(hmac=mac, renew_period_ms=period_ms))
    expires_ms: int = answer.expiry_timestamp_ms
    return expires_ms


def expire_token(servers: str, timeout: float, token_id: str, period_ms: int) -> int:
    """Set the expiry of a token to `period_ms` from now; -1 deletes the token.

    Return the new expiry in ms since 1970. `servers` are the addresses of brokers (``host:port,...``), and
    `timeout` is the time limit in seconds.

    Raises:
        KafkaError: the broker rejected the request. ClientError: no broker answers, or the user sees no such
            token.
    """
    mac = _hmac(servers, timeout, token_id)
    answer = _asked(servers, timeout, ExpireDelegationTokenRequest(hmac=mac, expiry_time_period_ms=period_ms))
    expires_ms: int = answer.expiry_timestamp_ms
    return expires_ms


def _hmac(servers: str, timeout: float, token_id: str) -> bytes:
    for token in _described(servers, timeout):
        if token.token_id == token_id:
            return token.hmac
    raise ClientError(f"there is no delegation token {token_id} that you may see: see barnabas tokens list")


def _described(servers: str, timeout: float) -> list[DescribedDelegationToken]:
    found: list[DescribedDelegationToken] = _asked(
        servers, timeout, DescribeDelegationTokenRequest(owners=None)
    ).tokens
    return found


def _asked(servers: str, timeout: float, request: Any) -> Any:
    answer = ask_once(servers, timeout, request)
    check_code(answer.error_code)
    return answer
