"""The credentials that logins are checked against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias

from barnabas.broker.logins.delegation_tokens import DelegationToken

#: the credentials of users, as text by the name of the mechanism, among other settings; by user
Users: TypeAlias = Mapping[str, Mapping[str, str]]


class StoredLogins(Protocol):
    """The users, tokens and passwords that the broker knows now. Any thread may ask."""

    @property
    def users(self) -> Users:
        """The cluster's users; another object whenever they have changed."""

    @property
    def delegation_tokens(self) -> Mapping[str, DelegationToken]:
        """The cluster's delegation tokens, by their ids."""

    def passwords(self, listener: str) -> Mapping[str, str]:
        """The passwords that a listener has for PLAIN beside those of `users`, by user."""
