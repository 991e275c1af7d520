"""The stored users, passwords and delegation tokens that the broker checks logins against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias

from barnabas.broker.logins.delegation_tokens import DelegationToken

#: by user: the user's settings. A SCRAM credential is a setting named after its mechanism
Users: TypeAlias = Mapping[str, Mapping[str, str]]


class StoredLogins(Protocol):
    """The users, tokens and passwords that the broker has at present. Any thread can read them."""

    @property
    def users(self) -> Users:
        """The settings of the cluster's users, which include SCRAM credentials.

        Each change gives a new object.
        """

    @property
    def delegation_tokens(self) -> Mapping[str, DelegationToken]:
        """The cluster's delegation tokens by id."""

    def passwords(self, listener: str) -> Mapping[str, str]:
        """Return the passwords for PLAIN on a listener, by user.

        For a user with such a password, PLAIN does not accept the password of the user's SCRAM credentials.
        """
