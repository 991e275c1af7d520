"""Applies the decisions of the cluster about clients: their quotas, and the end of users."""

from __future__ import annotations

from barnabas.broker.metadata import ImageDelta
from barnabas.broker.quotas import ClientQuotas
from barnabas.broker.server.network.listener import Connections
from barnabas.kafka.security.scram import can_log_in


class ClientChanges:
    """Keeps quotas as the image has them, and closes the connections of users who may log in no more."""

    def __init__(self, quotas: ClientQuotas, connections: Connections) -> None:
        self._quotas = quotas
        self._connections = connections

    def follow(self, delta: ImageDelta) -> None:
        """Apply what has changed."""
        for entity in delta.client_quotas:
            texts = delta.after.client_quotas.get(entity, {})
            self._quotas.set(entity, texts)
            self._connections.rates.set(entity, texts)
        gone = _gone_users(delta)
        if gone:
            self._connections.close_users(gone)


def _gone_users(delta: ImageDelta) -> set[str]:
    """The users who could log in before, and cannot now.

    One node of the metadata store has the quotas and the credentials of a user: a change of either is in
    `client_quotas`.
    """
    users = {e.user for e in delta.client_quotas if isinstance(e.user, str) and e.client_id is None}
    before, after = delta.before.user_configs, delta.after.user_configs
    return {
        user for user in users if can_log_in(before.get(user, {})) and not can_log_in(after.get(user, {}))
    }
