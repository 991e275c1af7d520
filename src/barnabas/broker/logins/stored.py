"""The stored users, passwords and delegation tokens that the broker checks logins against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias

from barnabas.broker.logins.delegation_tokens import DelegationToken

#: by user: the user's settings. A SCRAM credential is a setting named after its mechanism
Users: TypeAlias = Mapping[str, Mapping[str, str]]


class StoredLogins(Protocol):
    """The users, tokens and passwords that the broker knows now. Any thread can read them."""

    @property
    def users(self) -> Users:
        """Return the cluster's users. Each change of them gives a new object."""

    @property
    def delegation_tokens(self) -> Mapping[str, DelegationToken]:
        """Return the cluster's delegation tokens by id."""

    def passwords(self, listener: str) -> Mapping[str, str]:
        """Return a listener's PLAIN passwords by user. They take precedence over stored SCRAM credentials."""
