"""First stage: binds the broker's addresses.

If another broker already uses an address, the start fails here, before the broker has changed anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.base.environment.blocking import Pool
from barnabas.base.errors import ConfigError
from barnabas.broker.config import BrokerConfig
from barnabas.broker.logins.delegation_tokens import TokenKeys
from barnabas.broker.logins.tokens import Tokens
from barnabas.broker.logs.log_dirs import check_folders
from barnabas.broker.server.auditing.trail import AuditTrail
from barnabas.broker.server.authorization import open_authorizer
from barnabas.broker.server.monitoring.monitor import Monitor
from barnabas.broker.server.network.endpoint import (
    Endpoint,
    advertised_endpoints,
    bound_endpoints,
    check_protection,
    inter_broker_listener,
)
from barnabas.broker.server.network.kerberos_keys import read_kerberos
from barnabas.broker.server.network.listener import Listener
from barnabas.broker.server.network.tls_keys import ListenerKeys
from barnabas.broker.server.network.token_keys import open_tokens
from barnabas.broker.server.stages.closing import Closing, stage
from barnabas.broker.server.stages.foundation import Foundation
from barnabas.kafka.security.acls import Authorizer

#: Threads for each log directory, in a common pool. A disk that hangs occupies one thread with deletions, one
#: with checkpoints, and one with retention, so other disks have threads left. Truncations have no such limit.
_DISK_THREADS = 4


@dataclass(frozen=True, slots=True)
class Binding:
    """The parts of the first stage: the bound listeners, and the keys and checks for their clients."""

    listeners: list[Listener]
    #: the addresses, in the order of ``listeners``
    bound: list[Endpoint]
    #: the addresses that clients are told, in the same order
    advertised: list[Endpoint]
    #: the listener of this broker that the other brokers use
    internal: Endpoint
    #: None if no listener uses TLS
    tls_keys: ListenerKeys | None
    #: verifies OAUTHBEARER tokens, by listener
    tokens: Mapping[str, Tokens]
    #: the keys of delegation tokens; None without a secret
    token_keys: TokenKeys | None
    authorizer: Authorizer | None
    trail: AuditTrail
    #: serves metrics and health; None where the settings name no address for it
    monitor: Monitor | None
    #: threads for fsyncs, checkpoints and deletions
    disk: Pool

    async def try_keys(self, config: BrokerConfig) -> None:
        """Raise ConfigError if the listeners could not use the TLS or Kerberos keys that `config` names."""
        if self.tls_keys is not None:
            await self.tls_keys.try_out(config, self.disk)
        await self.disk.run(read_kerberos, config, self.bound)


@stage
async def open_binding(closing: Closing, foundation: Foundation) -> Binding:
    """Check the settings of the listeners, bind their addresses, and start to serve the broker's health.

    The listeners accept no connections yet.

    Raises:
        ConfigError: a setting is invalid, an address cannot be bound, another broker uses a folder of
            ``log.dirs``, or no folder of ``log.dirs`` can be used.
    """
    environment, view, config = foundation.environment, foundation.view, foundation.view.config
    authorizer = open_authorizer(config, view)
    trail = AuditTrail(config, environment)
    token_keys = _token_keys(config)
    closing.add(trail.close)
    machine_name = environment.network.machine_name
    endpoints = bound_endpoints(config)
    check_protection(config, endpoints)
    inter_broker_listener(config, endpoints)
    advertised_endpoints(config, endpoints, machine_name)  # refuses a wrong one before any is bound
    names = [endpoint.name for endpoint in endpoints if endpoint.has_tls]
    tls_keys = ListenerKeys(view, names) if names else None
    connections = foundation.connections
    listeners = [
        Listener(
            endpoint,
            connections,
            environment.network,
            tls_keys.of(endpoint.name).context if tls_keys and endpoint.has_tls else None,
        )
        for endpoint in endpoints
    ]
    if len(endpoints) > 1:
        connections.protected = inter_broker_listener(config, endpoints).name
    for listener in listeners:
        closing.add(listener.unbind)
        listener.bind()
    bound = [listener.endpoint for listener in listeners]
    tokens = await open_tokens(config, bound, environment, closing.add)
    monitor = None
    if config.barnabas_metrics_listener is not None:
        monitor = Monitor(
            config.barnabas_metrics_listener, environment, foundation.health, foundation.long_work
        )
        closing.add(monitor.stop)
        await monitor.start()
    disk = environment.blocking.pool("disk", _DISK_THREADS * len(config.log_dirs))
    closing.add(disk.close)
    closing.add(foundation.cold_reads.stop)
    await disk.run(check_folders, config, environment.filesystem)
    return Binding(
        listeners=listeners,
        bound=bound,
        advertised=advertised_endpoints(config, bound, machine_name),
        internal=inter_broker_listener(config, bound),
        tls_keys=tls_keys,
        tokens=tokens,
        token_keys=token_keys,
        authorizer=authorizer,
        trail=trail,
        monitor=monitor,
        disk=disk,
    )


def _token_keys(config: BrokerConfig) -> TokenKeys | None:
    """Return the keys of delegation tokens; None if ``delegation.token.secret.key`` is not set.

    Raises ConfigError if this setting is invalid.
    """
    secret = config.delegation_token_secret_key
    try:
        return None if secret is None else TokenKeys(secret)
    except UnicodeEncodeError:
        name = "secret" if config.delegation_token_master_key is None else "master"
        raise ConfigError(
            f"delegation.token.{name}.key is not allowed: UTF-8 has no such characters"
        ) from None
