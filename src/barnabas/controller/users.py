"""Users and their credentials (KIP-554)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.controller.controller_election import ControllerElection
from barnabas.errors import ErrorCode, KafkaError
from barnabas.metadata import znodes
from barnabas.metadata.loader import MetadataLoader
from barnabas.metadata.store import Create, Delete, Operation, Set
from barnabas.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, Mechanism, of_salted_password

#: the longest name and the largest salt that are taken, in bytes
_LONGEST_NAME = 256
_LARGEST_SALT = 1024


class CredentialChange(NamedTuple):
    """A user gets a password for one mechanism, as its client has salted it; with none, it is taken away."""

    user: str
    mechanism: int
    iterations: int = 0
    salt: bytes = b""
    salted_password: bytes | None = None


class UserControl:
    """The part of the controller that decides who may log in, and by which password."""

    def __init__(self, election: ControllerElection, loader: MetadataLoader) -> None:
        self._election = election
        self._loader = loader

    async def alter(self, changes: Sequence[CredentialChange]) -> dict[str, KafkaError]:
        """Make the changes, all of a user or none; for each user whose were not made, why.

        The codes are UNACCEPTABLE_CREDENTIAL, UNSUPPORTED_SASL_MECHANISM, RESOURCE_NOT_FOUND for a credential
        to be taken away that is not there, DUPLICATE_RESOURCE for two changes of one.
        """
        by_user: dict[str, list[CredentialChange]] = {}
        for change in changes:
            by_user.setdefault(change.user, []).append(change)
        async with self._election.deciding():
            image = await self._loader.settled()
            errors: dict[str, KafkaError] = {}
            changed: dict[str, dict[str, str]] = {}
            for user, wanted in by_user.items():
                try:
                    changed[user] = _changed(dict(image.user_configs.get(user, {})), wanted)
                except KafkaError as error:
                    errors[user] = error
            folders = await self._election.read([znodes.user_clients(user) for user in changed])
            writes: dict[str, list[Operation]] = {}
            for (user, texts), folder in zip(changed.items(), folders, strict=True):
                path, data = znodes.user_config(user), znodes.encode_config(texts)
                if user not in image.user_configs:
                    writes[user] = [Create(path, data)]
                else:  # quotas of the user's client ids lie below
                    writes[user] = [Set(path, data) if texts or folder is not None else Delete(path)]
            errors |= await self._election.write_each(writes)
            await self._loader.settled()
            return errors


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
    try:
        mechanism = Mechanism(change.mechanism)
    except ValueError:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"there is no SCRAM mechanism {change.mechanism}"
        ) from None
    if not change.user or len(change.user.encode()) > _LONGEST_NAME:
        raise _refuse(f"a user's name has 1 to {_LONGEST_NAME} bytes")
    if change.salted_password is None:
        return mechanism
    if not MIN_ITERATIONS <= change.iterations <= MAX_ITERATIONS:
        raise _refuse(
            f"{change.iterations} iterations are not allowed: ask for {MIN_ITERATIONS} to {MAX_ITERATIONS}"
        )
    if not change.salt or len(change.salt) > _LARGEST_SALT:
        raise _refuse(f"a salt has 1 to {_LARGEST_SALT} bytes")
    if len(change.salted_password) != mechanism.size:
        raise _refuse(f"a salted password of {mechanism.text} has {mechanism.size} bytes")
    return mechanism


def _refuse(message: str) -> KafkaError:
    return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
