"""Credentials that a test gives to the login code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from barnabas.broker.logins.delegation_tokens import DelegationToken
from barnabas.broker.logins.stored import Users


@dataclass
class Given:
    """`StoredLogins` with these users and listeners."""

    users: Users = field(default_factory=dict)
    listeners: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    delegation_tokens: Mapping[str, DelegationToken] = field(default_factory=dict)

    def passwords(self, listener: str) -> Mapping[str, str]:
        return self.listeners.get(listener, {})
