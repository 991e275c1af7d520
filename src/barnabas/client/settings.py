"""From keyword arguments to librdkafka's settings, and a quick look whether anyone is there."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from barnabas.client.errors import ClientError, unreachable

#: The few names of confluent-kafka's that have underscores.
_UNDERSCORED = ("log_level", "error_cb", "stats_cb", "throttle_cb", "oauth_cb", "on_delivery", "on_commit")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

#: A client that has lost every broker keeps those it knows. librdkafka's default (KIP-899) is to forget them,
#: and then, up to 2.16 at least, it waits for ever for a coordinator that it still remembers, or aborts the
#: process (librdkafka issue 5511): with a single broker, after any restart.
KEEP_BROKERS = {"metadata.recovery.strategy": "none"}


def librdkafka_settings(bootstrap_servers: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """`linger_ms=5` becomes `linger.ms: 5`; librdkafka's own chatter on stderr is off unless asked for."""
    named = {
        name if name in _UNDERSCORED else name.replace("_", "."): value for name, value in settings.items()
    }
    return {"log_level": 0, **KEEP_BROKERS, **named, "bootstrap.servers": bootstrap_servers}


def require_broker(bootstrap_servers: str, timeout: float = 3.0) -> None:
    """Return when one of the servers takes a connection: librdkafka itself would go on trying in silence.

    Raises:
        ClientError: none does, or an address is not HOST:PORT.
    """
    for address in bootstrap_servers.split(","):
        host, colon, port = address.strip().rpartition(":")
        if not colon or not port.isdecimal():
            raise ClientError(f"{address!r} is not HOST:PORT, for example {DEFAULT_BOOTSTRAP}")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout).close()
            return
        except (OSError, OverflowError):
            continue
    raise unreachable(bootstrap_servers)
