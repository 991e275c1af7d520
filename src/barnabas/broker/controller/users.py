"""Changes users and their credentials (KIP-554)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.text import logger_of
from barnabas.broker.controller.writes import ControllerWrites
from barnabas.broker.metadata import token_nodes, znodes
from barnabas.broker.metadata.image import ClusterImage
from barnabas.broker.metadata.store import Create, Delete, Operation, Set
from barnabas.kafka.security.principal import Principal, check_name
from barnabas.kafka.security.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    Mechanism,
    can_log_in,
    of_salted_password,
)

log = logger_of(__name__)

#: the longest name and the largest salt that are taken, in bytes
_MAX_NAME_LENGTH = 256
_MAX_SALT = 1024
#: bytes; SCRAM's own have 32 or 64
_MAX_SALTED = 1024


class CredentialChange(NamedTuple):
    """A change of a user's credential for one mechanism.

    `salted_password` comes from the client; None deletes the credential.
    """

    user: str
    mechanism: int
    iterations: int = 0
    salt: bytes = b""
    salted_password: bytes | None = None


class UserControl:
    """The part of the controller that changes users and their passwords."""

    def __init__(self, writes: ControllerWrites) -> None:
        self._writes = writes

    async def alter(self, changes: Sequence[CredentialChange]) -> dict[str, KafkaError]:
        """Change the credentials of users. Return the error of each user that was not changed.

        All changes of a user are made, or none. When the last credential of a user is deleted, the user's
        delegation tokens are deleted, too.

        The error is UNACCEPTABLE_CREDENTIAL for a name, a salt, a password or a number of iterations that is
        not allowed. It is UNSUPPORTED_SASL_MECHANISM for an unknown mechanism, and RESOURCE_NOT_FOUND if the
        credential to delete does not exist. It is DUPLICATE_RESOURCE for two changes of the same credential.
        Otherwise it is the error of the failed write.

        Raises:
            KafkaError: NOT_CONTROLLER; KAFKA_STORAGE_ERROR.
        """
        by_user: dict[str, list[CredentialChange]] = {}
        for change in changes:
            by_user.setdefault(change.user, []).append(change)
        async with self._writes.answering() as image:
            errors: dict[str, KafkaError] = {}
            changed: dict[str, dict[str, str]] = {}
            for user, wanted in by_user.items():
                try:
                    changed[user] = _changed(dict(image.user_configs.get(user, {})), wanted)
                except KafkaError as error:
                    errors[user] = error
            for user in [user for user, texts in changed.items() if _loses_login(image, user, texts)]:
                try:
                    await self._void_tokens(image, user)
                except KafkaError as error:  # the user stays as well
                    errors[user] = error
                    del changed[user]
            folders = await self._writes.read([znodes.user_clients(user) for user in changed])
            writes: dict[str, list[Operation]] = {}
            for (user, texts), folder in zip(changed.items(), folders, strict=True):
                path, data = znodes.user_config(user), znodes.encode_config(texts)
                if user not in image.user_configs:
                    writes[user] = [Create(path, data)]
                else:  # quotas of the user's client ids are below
                    writes[user] = [Set(path, data) if texts or folder is not None else Delete(path)]
            errors |= await self._writes.write_each(writes)
            return errors

    async def _void_tokens(self, image: ClusterImage, user: str) -> None:
        """Delete the delegation tokens of a user who is about to lose the last credential.

        Without this, the tokens would stay valid. Raises KafkaError if a token cannot be deleted.
        """
        owner = Principal(user)
        tokens = sorted(token.id for token in image.delegation_tokens.values() if token.owner == owner)
        if tokens:
            log.info("%d delegation tokens of the user '%s' are deleted with it", len(tokens), user)
        await self._writes.write_batches([Delete(token_nodes.path(token_id)) for token_id in tokens])


def _loses_login(image: ClusterImage, user: str, texts: Mapping[str, str]) -> bool:
    return can_log_in(image.user_configs.get(user, {})) and not can_log_in(texts)


def _changed(before: dict[str, str], changes: Sequence[CredentialChange]) -> dict[str, str]:
    texts = dict(before)
    seen: set[Mechanism] = set()
    for change in changes:
        mechanism = _check(change)
        if mechanism in seen:
            raise KafkaError(
                ErrorCode.DUPLICATE_RESOURCE, f"the request changes {mechanism.text} of '{change.user}' twice"
            )
        seen.add(mechanism)
        if change.salted_password is not None:
            credential = of_salted_password(mechanism, change.salted_password, change.salt, change.iterations)
            texts[mechanism.text] = credential.encode()
        elif texts.pop(mechanism.text, None) is None:
            raise KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND, f"'{change.user}' has no credential for {mechanism.text}"
            )
    return texts


def _check(change: CredentialChange) -> Mechanism:
    if not change.user or len(change.user.encode()) > _MAX_NAME_LENGTH:
        raise _refuse(f"a user's name has 1 to {_MAX_NAME_LENGTH} bytes")
    try:
        mechanism = Mechanism(change.mechanism)
    except ValueError:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"there is no SCRAM mechanism {change.mechanism}"
        ) from None
    if change.salted_password is None:
        return mechanism
    try:
        check_name(change.user)
    except ValueError as error:
        raise _refuse(str(error)) from None
    if not MIN_ITERATIONS <= change.iterations <= MAX_ITERATIONS:
        raise _refuse(
            f"{change.iterations} iterations are not allowed: ask for {MIN_ITERATIONS} to {MAX_ITERATIONS}"
        )
    if not change.salt or len(change.salt) > _MAX_SALT:
        raise _refuse(f"a salt has 1 to {_MAX_SALT} bytes")
    # Kafka takes any length: a client (kafka-go) may salt a password in its own way, and log in so.
    if not 1 <= len(change.salted_password) <= _MAX_SALTED:
        raise _refuse(f"a salted password has 1 to {_MAX_SALTED} bytes")
    return mechanism


def _refuse(message: str) -> KafkaError:
    return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
