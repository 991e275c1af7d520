"""Parses and checks the addresses ``NAME://HOST:PORT`` that a broker binds, and those that it advertises."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from barnabas.base.errors import ConfigError
from barnabas.base.text import quoted
from barnabas.broker.config import BrokerConfig
from barnabas.broker.config.listener_settings import LIMITS, ListenerSetting
from barnabas.kafka.security.jaas import parse_jaas, plain_users

_PATTERN = re.compile(
    r"(?P<name>[A-Za-z0-9_-]+)://(?:\[(?P<v6>[0-9a-fA-F:.%]+)\]|(?P<host>[\w.-]{0,255})):(?P<port>\d{1,5})"
)

_MODULES = ("ScramLoginModule", "PlainLoginModule")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Name and address of one listener. An empty host means every interface, and port 0 any free port."""

    name: str
    host: str
    port: int
    #: security protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
    protocol: str = "PLAINTEXT"

    @classmethod
    def parse(cls, text: str, setting: str) -> Endpoint:
        """Parse one address. `setting` is the name of the setting that contains it, for the error message.

        Raises:
            ConfigError: `text` is not NAME://HOST:PORT.
        """
        match = _PATTERN.fullmatch(text.strip())
        if match is None or int(match["port"]) > 65535:
            raise ConfigError(
                f"{setting}={quoted(text)} is not allowed: write NAME://HOST:PORT, such as PLAINTEXT://127.0.0.1:9092"
            )
        return cls(match["name"].upper(), match["v6"] or match["host"], int(match["port"]))

    def __str__(self) -> str:
        return f"{self.name}://{self._shown_host}:{self.port}"

    @property
    def address(self) -> str:
        """The text ``host:port``, with ``0.0.0.0`` for an empty host."""
        return f"{self._shown_host or '0.0.0.0'}:{self.port}"

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def is_every_interface(self) -> bool:
        """Whether the host means every interface.

        A broker can bind such an address, but no client can connect to it.
        """
        try:
            return not self.host or ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False

    @property
    def is_loopback(self) -> bool:
        """Whether only clients on this machine can reach the address."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def _shown_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def bound_endpoints(config: BrokerConfig) -> list[Endpoint]:
    """Parse the setting ``listeners``.

    Raises:
        ConfigError: an address is invalid, a name is used twice, the list is empty, or
            ``listener.security.protocol.map`` is invalid or lacks a name.
    """
    endpoints = _parse_all(config.listeners, "listeners", config)
    if not endpoints:
        raise ConfigError("listeners is empty: name at least one, such as PLAINTEXT://127.0.0.1:9092")
    return endpoints


def advertised_endpoints(
    config: BrokerConfig, bound: list[Endpoint], machine_name: Callable[[], str]
) -> list[Endpoint]:
    """Return the address that the broker advertises for each listener, in the order of `bound`.

    A port of 0 in ``advertised.listeners`` means the bound port. A listener without an advertised address
    gets its bound address. If the bound host is every interface, the result of `machine_name` replaces the
    host.

    Raises:
        ConfigError: a name is not in ``listeners``, or clients cannot connect to an address.
    """
    endpoints = _parse_all(config.advertised_listeners, "advertised.listeners", config)
    advertised = {endpoint.name: endpoint for endpoint in endpoints}
    unknown = advertised.keys() - {e.name for e in bound}
    if unknown:
        raise ConfigError(
            f"advertised.listeners names {', '.join(sorted(unknown))}, which listeners does not"
        )
    result = []
    for endpoint in bound:
        public = advertised.get(endpoint.name)
        if public is None:
            host = machine_name() if endpoint.is_every_interface else endpoint.host
            public = replace(endpoint, host=host)
        elif public.is_every_interface:
            raise ConfigError(
                f"advertised.listeners={public} is not allowed: clients cannot connect to every interface; "
                "use a name or an address of this machine"
            )
        result.append(replace(public, port=public.port or endpoint.port))
    return result


def check_protection(config: BrokerConfig, endpoints: Sequence[Endpoint]) -> None:
    """Reject settings for TLS or SASL that have no effect, because no listener uses them.

    With such settings, the broker would be less protected than its operator expects.

    Raises:
        ConfigError: there is an ``ssl.`` or ``sasl.`` setting, and no listener uses TLS or SASL. Or there is
            a setting for one listener (``listener.name.NAME.``), and that listener does not exist, or does
            not use the setting's protocol. Or the users for SASL/PLAIN are invalid.
    """
    has_tls = any(endpoint.has_tls for endpoint in endpoints)
    has_sasl = any(endpoint.has_sasl for endpoint in endpoints)
    for name in config.given:
        override = ListenerSetting.parse(name)
        if override is not None:
            _check_override(override, endpoints)
        if (name.startswith("ssl.") and not has_tls) or (name.startswith("sasl.") and not has_sasl):
            protocol = "SSL" if name.startswith("ssl.") else "SASL_SSL"
            raise ConfigError(
                f"{name} is set, and none of listeners speaks {protocol}: add {protocol}://HOST:PORT to "
                f"listeners, or remove {name}"
            )
    for endpoint in endpoints:
        if endpoint.has_sasl and "PLAIN" in config.for_listener(endpoint.name).sasl_enabled_mechanisms:
            users_of_listener(config, endpoint.name)


def _check_override(override: ListenerSetting, endpoints: Sequence[Endpoint]) -> None:
    for endpoint in endpoints:
        if endpoint.name.lower() == override.listener:
            speaks = endpoint.has_tls if override.overridden.startswith("ssl.") else endpoint.has_sasl
            if speaks or override.overridden in LIMITS:
                return
            raise ConfigError(
                f"{override.name} is set, and that listener speaks {endpoint.protocol}: remove it"
            )
    names = ", ".join(endpoint.name for endpoint in endpoints)
    raise ConfigError(f"{override.name} is set, and listeners has no such name: it has {names}")


def inter_broker_listener(config: BrokerConfig, endpoints: list[Endpoint]) -> Endpoint:
    """Return the listener at which the other brokers connect to this one.

    ``inter.broker.listener.name`` names the listener, or ``security.inter.broker.protocol`` selects the first
    one with this protocol. Without either setting, the result is the listener PLAINTEXT if there is one, or
    the first of `endpoints`.

    Raises:
        ConfigError: both settings are set, `endpoints` has no such listener, or the broker uses ZooKeeper and
            lacks a login for this listener.
    """
    names = [endpoint.name for endpoint in endpoints]
    name = config.inter_broker_listener_name
    protocol = config.security_inter_broker_protocol
    if protocol is not None:
        if name is not None:
            raise ConfigError(
                "inter.broker.listener.name and security.inter.broker.protocol are both set: remove one"
            )
        name = next((endpoint.name for endpoint in endpoints if endpoint.protocol == protocol), None)
        if name is None:
            raise ConfigError(
                f"security.inter.broker.protocol={protocol} is not allowed: none of listeners speaks it"
            )
    elif name is None:
        name = "PLAINTEXT" if "PLAINTEXT" in names else names[0]
    elif name.upper() not in names:
        raise ConfigError(
            f"inter.broker.listener.name={quoted(name)} is not allowed: listeners has {', '.join(names)}"
        )
    endpoint = endpoints[names.index(name.upper())]
    if endpoint.has_sasl and config.zookeeper_connect is not None:
        broker_login(login_config(config, endpoint.name))
    return endpoint


def login_config(config: BrokerConfig, listener: str) -> BrokerConfig:
    """Return `config` with the settings for this broker's logins to other brokers.

    The settings for the listener with the name `listener`, and for the mechanism in
    ``sasl.mechanism.inter.broker.protocol``, override the settings for all listeners.
    """
    return config.for_listener(listener, config.sasl_mechanism_inter_broker_protocol)


def has_broker_login(config: BrokerConfig) -> bool:
    """Whether ``sasl.jaas.config`` has a username for this broker's own logins.

    If it has none, it has only the passwords of clients' users (`plain_users`).

    Raises:
        ConfigError: the setting is invalid.
    """
    return config.sasl_jaas_config is not None and "username" in parse_jaas(config.sasl_jaas_config).options


def users_of_listener(config: BrokerConfig, listener: str) -> Mapping[str, str]:
    """Return the passwords by user from ``listener.name.NAME.plain.sasl.jaas.config`` of a listener.

    The result is empty if the setting is not set.

    Raises:
        ConfigError: the setting is invalid.
    """
    jaas = config.for_listener(listener, "PLAIN").sasl_jaas_config
    return {} if jaas is None else plain_users(jaas)


def broker_login(config: BrokerConfig) -> tuple[str, str]:
    """Return the user and password with which this broker logs in to other brokers.

    Args:
        config: settings from `login_config`.

    Raises:
        ConfigError: ``sasl.jaas.config`` is missing, lacks a user or password, or is not for PLAIN or SCRAM;
            or ``sasl.mechanism.inter.broker.protocol`` is not an enabled mechanism.
    """
    if config.sasl_jaas_config is None:
        raise ConfigError(
            "brokers reach each other by a listener with SASL, and sasl.jaas.config is not set: name their "
            "user there, or another listener in inter.broker.listener.name"
        )
    module, options = parse_jaas(config.sasl_jaas_config)
    if module not in _MODULES or not options.get("username") or not options.get("password"):
        raise ConfigError(
            f"sasl.jaas.config cannot be used: write {' or '.join(_MODULES)}, with username and password"
        )
    mechanism = config.sasl_mechanism_inter_broker_protocol
    if mechanism not in config.sasl_enabled_mechanisms:
        raise ConfigError(
            f"sasl.mechanism.inter.broker.protocol={mechanism} is not allowed: sasl.enabled.mechanisms has "
            f"{', '.join(config.sasl_enabled_mechanisms)}"
        )
    return options["username"], options["password"]


def _parse_all(items: Iterable[str], setting: str, config: BrokerConfig) -> list[Endpoint]:
    protocols = _security_protocols(config.listener_security_protocol_map)
    endpoints = []
    for endpoint in (Endpoint.parse(item, setting) for item in items):
        if endpoint.name not in protocols:
            raise ConfigError(
                f"{setting}={endpoint} is not allowed: listener.security.protocol.map does not have "
                f"{endpoint.name}; add {endpoint.name}:PLAINTEXT, or another protocol, to it"
            )
        endpoints.append(replace(endpoint, protocol=protocols[endpoint.name]))
    names = [endpoint.name for endpoint in endpoints]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{setting} uses the name {name} twice: give each listener its own")
    return endpoints


def _security_protocols(text: str) -> dict[str, str]:
    """Return the security protocol of each listener name, from ``listener.security.protocol.map``.

    Raises:
        ConfigError: an item is not NAME:PROTOCOL, or a name has two protocols.
    """
    protocols: dict[str, str] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        name, _, protocol = (part.strip().upper() for part in item.partition(":"))
        if not name or protocol not in _PROTOCOLS or protocols.get(name, protocol) != protocol:
            raise ConfigError(
                f"listener.security.protocol.map={quoted(item)} is not allowed: write NAME:PROTOCOL, "
                "each name once, such as INTERNAL:PLAINTEXT"
            )
        protocols[name] = protocol
    return protocols
