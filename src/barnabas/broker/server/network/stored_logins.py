"""Finds the credentials for logins in the cluster image and the settings."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.logins.delegation_tokens import DelegationToken
from barnabas.broker.logins.stored import StoredLogins, Users
from barnabas.broker.server.network.endpoint import users_of_listener
from barnabas.broker.view import BrokerView


class ImageLogins(StoredLogins):
    """Implements `StoredLogins` with the current cluster image and settings of a broker."""

    def __init__(self, view: BrokerView) -> None:
        self._view = view

    @property
    def users(self) -> Users:
        return self._view.image.user_configs

    @property
    def delegation_tokens(self) -> Mapping[str, DelegationToken]:
        return self._view.image.delegation_tokens

    def passwords(self, listener: str) -> Mapping[str, str]:
        return users_of_listener(self._view.config, listener)
