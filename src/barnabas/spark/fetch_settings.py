"""The `kafka.*` settings that apply to reads. Reads use Barnabas' own client instead of librdkafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from barnabas.base.errors import ConfigError
from barnabas.client.addresses import Address
from barnabas.client.repeated import MAX_RESPONSE
from barnabas.client.security import ConnectionSecurity
from barnabas.client.security_settings import security_of
from barnabas.spark.option_values import invalid_option

_TRUE = ("true", "t", "1")
_LAST_PORT = 65_535

#: The settings with librdkafka's names, and their defaults, which are mostly Java's. The wait is shorter,
#: because a task reads records that exist already. Fetches are larger, because each becomes an Arrow batch.
FETCH_DEFAULTS = {
    "bootstrap.servers": "",
    "client.id": "barnabas",
    "isolation.level": "read_uncommitted",
    "fetch.wait.max.ms": "20",
    "fetch.min.bytes": "1",
    "fetch.max.bytes": "52428800",
    "max.partition.fetch.bytes": "4194304",
    "check.crcs": "true",
    "retry.backoff.ms": "100",
    "socket.timeout.ms": "30000",
}
#: Other names of these settings: aliases of librdkafka, and the names of Java's consumer.
OTHER_NAMES = {
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "request.timeout.ms": "socket.timeout.ms",
}

#: Further settings with an effect: they apply to a group's offsets, and to librdkafka, which reads samples.
_OF_LOOKUP = frozenset(
    {
        "group.id",
        "metadata.broker.list",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "retry.backoff.max.ms",
        "debug",
        "log_level",
        "allow.auto.create.topics",
    }
)
_OF_LOOKUP_BY_PREFIX = (
    "api.version.",
    "broker.",
    "enable.sasl.",
    "enable.ssl.",
    "https.",
    "metadata.",
    "reconnect.",
    "sasl.",
    "security.",
    "socket.",
    "ssl.",
    "topic.metadata.",
)


def has_effect(name: str) -> bool:
    """Whether a client setting has an effect on reads. `name` is without ``kafka.``."""
    return name in {*FETCH_DEFAULTS, *OTHER_NAMES, *_OF_LOOKUP} or name.startswith(_OF_LOOKUP_BY_PREFIX)


def reading_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a read under librdkafka's names. The names in `given` are without ``kafka.``.

    Raises:
        ConfigError: a setting has no effect on reads.
    """
    for name, value in given.items():
        if not has_effect(name):
            hint = "it has no effect on reading, which fetches by bytes and joins no group; remove it"
            raise invalid_option(f"kafka.{name}", value, hint)
    return {OTHER_NAMES.get(name, name): value for name, value in given.items()}


@dataclass(frozen=True)
class FetchSettings:
    """The checked client settings of a read. `retry_s` and `timeout_s` are in seconds."""

    servers: tuple[Address, ...]
    client_id: str
    read_committed: bool
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    check_crcs: bool
    retry_s: float
    timeout_s: float
    security: ConnectionSecurity = field(repr=False)

    @classmethod
    def parse(cls, client: Mapping[str, object]) -> FetchSettings:
        """Parse the settings that apply to reads. librdkafka must have accepted them before.

        Raises:
            ConfigError: an address is not HOST:PORT, a value is not a number, or a security setting is not
                allowed.
        """
        given = {name: str(value) for name, value in client.items()}
        take = {**FETCH_DEFAULTS, **given}

        def number(name: str) -> int:
            try:
                return int(take[name])
            except ValueError:
                raise invalid_option(f"kafka.{name}", take[name], "write a whole number") from None

        return cls(
            servers=tuple(parse_servers(take["bootstrap.servers"])),
            client_id=take["client.id"],
            read_committed=take["isolation.level"].lower() == "read_committed",
            max_wait_ms=number("fetch.wait.max.ms"),
            min_bytes=number("fetch.min.bytes"),
            # a larger response would not be taken for one
            max_bytes=min(number("fetch.max.bytes"), MAX_RESPONSE // 2),
            partition_max_bytes=number("max.partition.fetch.bytes"),
            check_crcs=take["check.crcs"].lower() in _TRUE,
            retry_s=number("retry.backoff.ms") / 1000,
            # an answer to a fetch may come so much later, as librdkafka reckons too
            timeout_s=(number("socket.timeout.ms") + number("fetch.wait.max.ms")) / 1000,
            security=_security(given),
        )


def _security(given: Mapping[str, str]) -> ConnectionSecurity:
    try:
        return security_of(given)
    except ConfigError as error:
        raise ConfigError(f"option kafka.{error}") from None


def parse_servers(text: str) -> list[Address]:
    """Parse a comma-separated list of HOST:PORT.

    As in librdkafka, PROTOCOL://HOST:PORT is valid, and the default port is 9092. Empty items are left out.

    Raises:
        ConfigError: an item is invalid.
    """
    return [_address(each) for each in text.split(",") if each.strip()]


def _address(text: str) -> Address:
    endpoint = text.strip().rpartition("://")[2]
    host, colon, port = endpoint.rpartition(":")
    if not colon or endpoint.endswith("]"):
        host, port = endpoint, "9092"
    if not port.isdecimal() or int(port) > _LAST_PORT:
        raise invalid_option("kafka.bootstrap.servers", text, "write HOST:PORT, separated by commas")
    return Address(host.strip("[]"), int(port))
