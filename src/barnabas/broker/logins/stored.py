"""The credentials that the broker compares with those of a client that logs in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias

from barnabas.broker.logins.delegation_tokens import DelegationToken

#: the credentials of users, as text by the name of the mechanism, among other settings; by user
Users: TypeAlias = Mapping[str, Mapping[str, str]]


class StoredLogins(Protocol):
    """The users, tokens and passwords that the broker knows now. Any thread can read them."""

    @property
    def users(self) -> Users:
        """Return the cluster's users; another object after each change."""

    @property
    def delegation_tokens(self) -> Mapping[str, DelegationToken]:
        """Return the cluster's delegation tokens by id."""

    def passwords(self, listener: str) -> Mapping[str, str]:
        """Return the additional passwords, by user, that a listener accepts with PLAIN."""
