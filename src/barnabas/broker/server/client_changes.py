"""Applies changes of quotas and users from the cluster image to connected clients."""

from __future__ import annotations

from barnabas.broker.metadata import ImageDelta
from barnabas.broker.quotas import ClientQuotas
from barnabas.broker.server.network.listener import Connections
from barnabas.kafka.security.scram import can_log_in


class ClientChanges:
    """Updates the quotas from each metadata image. Closes connections of users who can no longer log in."""

    def __init__(self, quotas: ClientQuotas, connections: Connections) -> None:
        self._quotas = quotas
        self._connections = connections

    def follow(self, delta: ImageDelta) -> None:
        """Update the quotas that changed in `delta`.

        Also close the connections of users whose SCRAM credentials the change has deleted.
        """
        for entity in delta.client_quotas:
            texts = delta.after.client_quotas.get(entity, {})
            self._quotas.set(entity, texts)
            self._connections.rates.set(entity, texts)
        gone = _gone_users(delta)
        if gone:
            self._connections.close_users(gone)


def _gone_users(delta: ImageDelta) -> set[str]:
    """Return the users who had SCRAM credentials before the change, and have none now.

    Only users in `delta.client_quotas` can be in the result. The store keeps a user's credentials and quotas
    in one node, so a change of the credentials also counts as a change of the quotas.
    """
    users = {e.user for e in delta.client_quotas if isinstance(e.user, str) and e.client_id is None}
    before, after = delta.before.user_configs, delta.after.user_configs
    return {
        user for user in users if can_log_in(before.get(user, {})) and not can_log_in(after.get(user, {}))
    }
