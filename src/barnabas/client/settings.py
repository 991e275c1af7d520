"""Converts keyword arguments to settings of librdkafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from barnabas.client.addresses import parse_servers
from barnabas.client.errors import SettingError
from barnabas.client.servers import Servers

C = TypeVar("C")

#: The few settings of confluent-kafka that have underscores in their names.
_UNDERSCORED = ("log_level", "error_cb", "stats_cb", "throttle_cb", "oauth_cb", "on_delivery", "on_commit")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

#: A client that has lost every broker keeps the brokers that it knows. By default (KIP-899), librdkafka
#: forgets them. Up to 2.16 at least, it then waits for ever for a coordinator that it still remembers, or
#: aborts the process (librdkafka issue 5511). With a single broker, any restart of the broker causes that.
KEEP_BROKERS = {"metadata.recovery.strategy": "none"}

#: For producers with transactions: closes a connection that has been idle for this many milliseconds. If a
#: group's coordinator leaves the cluster's metadata, `send_offsets_to_transaction` goes on waiting for it,
#: whatever the timeout of the call (librdkafka issues 5511 and 5456). librdkafka asks for the coordinator
#: again only when the state of some connection changes, for example when an idle connection is closed.
ASK_AGAIN = {"connections.max.idle.ms": 10_000}


def librdkafka_settings(bootstrap_servers: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return keyword arguments as librdkafka's settings: `linger.ms: 5` for `linger_ms=5`.

    Settings of `bootstrap_servers`, if it is a `Servers`, apply unless `settings` override them. librdkafka
    writes to stderr only if `log_level` is among the settings.
    """
    named = {
        name if name in _UNDERSCORED else name.replace("_", "."): value for name, value in settings.items()
    }
    own = bootstrap_servers.settings if isinstance(bootstrap_servers, Servers) else {}
    failover = {**KEEP_BROKERS, **(ASK_AGAIN if "transactional.id" in named else {})}
    return {"log_level": 0, **failover, **own, **named, "bootstrap.servers": str(bootstrap_servers)}


def create_client(
    kind: Callable[[dict[str, Any]], C],
    bootstrap_servers: str,
    settings: Mapping[str, Any],
    defaults: Mapping[str, Any] = MappingProxyType({}),
) -> C:
    """Return a new client of librdkafka.

    Args:
        kind: class of the client in confluent_kafka.
        settings: settings of librdkafka, with underscores for dots.
        defaults: settings of librdkafka under its own names, which `settings` override.

    Raises:
        ClientError: an address is not HOST:PORT.
        SettingError: librdkafka does not know one of the settings, or rejects its value.
    """
    import confluent_kafka  # takes a tenth of a second, and commands that only administer do without it

    parse_servers(bootstrap_servers)
    try:
        return kind({**defaults, **librdkafka_settings(bootstrap_servers, settings)})
    except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
        raise SettingError(f"librdkafka rejects the settings: {_reason(error)}") from None


def check_settings(bootstrap_servers: str, settings: Mapping[str, Any]) -> None:
    """Check the settings of a client that does not use librdkafka.

    Raises:
        ClientError: an address is not HOST:PORT.
        SettingError: librdkafka does not know the setting, or rejects its value.
    """
    from confluent_kafka.admin import AdminClient

    create_client(AdminClient, bootstrap_servers, settings)


def _reason(error: Exception) -> str:
    cause: Any = error.args[0] if error.args else error
    return cause.str().strip() if hasattr(cause, "str") else str(cause)
