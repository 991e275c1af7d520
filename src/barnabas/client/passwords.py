"""Requests about users' SCRAM passwords (KIP-554). Only salted passwords leave this process."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable

from barnabas.base.errors import ErrorCode
from barnabas.client.brokers import Brokers, ask_once, check, repeatable
from barnabas.client.connection import BrokerConnection
from barnabas.kafka.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.kafka.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResult,
    UserName,
)

#: SCRAM's mechanisms by their numbers in the protocol, and their hashes by hashlib's names
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_HASHES = {1: "sha256", 2: "sha512"}
_SALT_BYTES = 24


def list_users(brokers: Brokers) -> dict[str, dict[str, int]]:
    """Return each user with SCRAM credentials, and the iterations of each of the user's mechanisms."""
    return {
        found.user: {
            _MECHANISMS.get(info.mechanism, "unknown"): info.iterations
            for info in sorted(found.credential_infos, key=lambda info: info.mechanism)
        }
        for found in sorted(_describe(brokers, None), key=lambda found: found.user)
    }


def known_users(servers: str, timeout: float, users: Iterable[str]) -> set[str]:
    """Return the names in `users` that have a SCRAM password.

    If `users` is empty, return the name of every user who has one. `servers` are the addresses of brokers
    (``host:port,...``); `timeout` is the time limit in seconds.

    Raises:
        KafkaError: the broker rejected the request. ClientError: no broker answers.
    """
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=user) for user in sorted(users)])
    answer = ask_once(servers, timeout, request)
    check(answer.error_code, "users", answer.error_message)
    return {found.user for found in answer.results if not found.error_code}


def set_password(brokers: Brokers, user: str, password: str, iterations: int) -> None:
    """Set a user's password for SCRAM-SHA-256 and SCRAM-SHA-512. Send only the salted password.

    `iterations` is the number of rounds of the hash function (PBKDF2) for each mechanism.
    """
    upsertions = []
    for mechanism, digest in _HASHES.items():
        salt = secrets.token_bytes(_SALT_BYTES)
        upsertions.append(
            ScramCredentialUpsertion(
                name=user,
                mechanism=mechanism,
                iterations=iterations,
                salt=salt,
                salted_password=hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations),
            )
        )
    _alter(brokers, user, AlterUserScramCredentialsRequest(upsertions=upsertions))


def delete_user(brokers: Brokers, user: str) -> None:
    """Delete a user's passwords. Raises KafkaError if there are none."""
    (found,) = _describe(brokers, user)
    deletions = [
        ScramCredentialDeletion(name=user, mechanism=info.mechanism) for info in found.credential_infos
    ]
    _alter(brokers, user, AlterUserScramCredentialsRequest(deletions=deletions))


def _describe(brokers: Brokers, user: str | None) -> list[DescribeUserScramCredentialsResult]:
    users = None if user is None else [UserName(name=user)]
    response = brokers.ask_any(DescribeUserScramCredentialsRequest(users=users))
    check(response.error_code, user or "users", response.error_message)
    for found in response.results:
        check(found.error_code, found.user, found.error_message)
    results: list[DescribeUserScramCredentialsResult] = response.results
    return results


def _alter(brokers: Brokers, user: str, request: AlterUserScramCredentialsRequest) -> None:
    def alter(connection: BrokerConnection) -> None:
        (result,) = connection.ask(request).results
        check(result.error_code, user, result.error_message)

    brokers.ask_controller(repeatable(alter, ErrorCode.RESOURCE_NOT_FOUND))
