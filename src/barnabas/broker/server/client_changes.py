"""Applies changes of quotas and users from the cluster image to connected clients."""

from __future__ import annotations

from barnabas.broker.metadata import ImageDelta
from barnabas.broker.quotas import ClientQuotas
from barnabas.broker.server.network.listener import Connections
from barnabas.kafka.security.scram import can_log_in


class ClientChanges:
    """Updates the quotas from each image, and closes the connections of users who may no longer log in."""

    def __init__(self, quotas: ClientQuotas, connections: Connections) -> None:
        self._quotas = quotas
        self._connections = connections

    def follow(self, delta: ImageDelta) -> None:
        """Apply the changes of an image."""
        for entity in delta.client_quotas:
            texts = delta.after.client_quotas.get(entity, {})
            self._quotas.set(entity, texts)
            self._connections.rates.set(entity, texts)
        gone = _gone_users(delta)
        if gone:
            self._connections.close_users(gone)


def _gone_users(delta: ImageDelta) -> set[str]:
    """Return the users who could log in before this change and cannot log in now.

    The quotas and the credentials of a user are in one node of the metadata store. So a change of credentials
    is also in `client_quotas`.
    """
    users = {e.user for e in delta.client_quotas if isinstance(e.user, str) and e.client_id is None}
    before, after = delta.before.user_configs, delta.after.user_configs
    return {
        user for user in users if can_log_in(before.get(user, {})) and not can_log_in(after.get(user, {}))
    }
