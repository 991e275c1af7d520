"""Where a listener binds and where clients are told to connect: ``NAME://HOST:PORT``."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from barnabas.config import BrokerConfig
from barnabas.config.setting import shown
from barnabas.errors import ConfigError

_PATTERN = re.compile(
    r"(?P<name>[A-Za-z0-9_-]+)://(?:\[(?P<v6>[0-9a-fA-F:.%]+)\]|(?P<host>[\w.-]{0,255})):(?P<port>\d{1,5})"
)

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One listener's name and address; an empty host is every interface, port 0 a free one."""

    name: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str, setting: str) -> Endpoint:
        """The endpoint that `text` spells, an item of the setting called `setting`.

        Raises:
            ConfigError: it is not NAME://HOST:PORT.
        """
        match = _PATTERN.fullmatch(text.strip())
        if match is None or int(match["port"]) > 65535:
            raise ConfigError(
                f"{setting}={shown(text)} is not allowed: write NAME://HOST:PORT, such as PLAINTEXT://127.0.0.1:9092"
            )
        return cls(match["name"].upper(), match["v6"] or match["host"], int(match["port"]))

    def __str__(self) -> str:
        return f"{self.name}://{self._shown_host}:{self.port}"

    @property
    def address(self) -> str:
        """``host:port``; an empty host is ``0.0.0.0``."""
        return f"{self._shown_host or '0.0.0.0'}:{self.port}"

    @property
    def is_every_interface(self) -> bool:
        """Whether it is where a broker may listen, and what a client cannot connect to."""
        try:
            return not self.host or ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False

    @property
    def _shown_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def bound_endpoints(config: BrokerConfig) -> list[Endpoint]:
    """What ``listeners`` asks to bind.

    Raises:
        ConfigError: an item cannot be read, a name is used twice, there is none, or one is to speak
            another protocol than PLAINTEXT.
    """
    endpoints = _parse_all(config.listeners, "listeners")
    if not endpoints:
        raise ConfigError("listeners is empty: name at least one, such as PLAINTEXT://127.0.0.1:9092")
    _require_plaintext(endpoints, "listeners", config)
    return endpoints


def advertised_endpoints(
    config: BrokerConfig, bound: list[Endpoint], machine_name: Callable[[], str]
) -> list[Endpoint]:
    """What clients are told, for each of `bound` (with its real port) in that order.

    A port of 0 in ``advertised.listeners`` stands for the port that was bound. A listener on every interface
    that has no advertised address is told by this machine's name, which `machine_name` finds out.

    Raises:
        ConfigError: a name is not in ``listeners``, or an address cannot be connected to.
    """
    endpoints = _parse_all(config.advertised_listeners, "advertised.listeners")
    _require_plaintext(endpoints, "advertised.listeners", config)
    advertised = {endpoint.name: endpoint for endpoint in endpoints}
    unknown = advertised.keys() - {e.name for e in bound}
    if unknown:
        raise ConfigError(
            f"advertised.listeners names {', '.join(sorted(unknown))}, which listeners does not"
        )
    result = []
    for endpoint in bound:
        told = advertised.get(endpoint.name)
        if told is None:
            host = machine_name() if endpoint.is_every_interface else endpoint.host
            told = Endpoint(endpoint.name, host, endpoint.port)
        elif told.is_every_interface:
            raise ConfigError(
                f"advertised.listeners={told} is not allowed: clients cannot connect to every interface; "
                "use a name or an address of this machine"
            )
        result.append(Endpoint(told.name, told.host, told.port or endpoint.port))
    return result


def _parse_all(items: Iterable[str], setting: str) -> list[Endpoint]:
    endpoints = [Endpoint.parse(item, setting) for item in items]
    names = [endpoint.name for endpoint in endpoints]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{setting} uses the name {name} twice: give each listener its own")
    return endpoints


def _require_plaintext(endpoints: Iterable[Endpoint], setting: str, config: BrokerConfig) -> None:
    """Raises ConfigError for an endpoint that is to speak TLS or SASL: it must not start without them."""
    protocols = _security_protocols(config.listener_security_protocol_map)
    for endpoint in endpoints:
        protocol = protocols.get(endpoint.name)
        if protocol is None:
            raise ConfigError(
                f"{setting}={endpoint} is not allowed: listener.security.protocol.map does not have "
                f"{endpoint.name}; add {endpoint.name}:PLAINTEXT to it"
            )
        if protocol != "PLAINTEXT":
            address = str(endpoint).partition("://")[2]
            by = "" if protocol == endpoint.name else " by listener.security.protocol.map"
            cure = "use PLAINTEXT" if by else f"use PLAINTEXT://{address}"
            raise ConfigError(
                f"{setting}={endpoint} is not allowed, since it would have to speak {protocol}{by}: "
                f"TLS and SASL are not there yet; {cure}, on a network that you trust"
            )


def _security_protocols(text: str) -> dict[str, str]:
    """The protocol of each listener name in ``listener.security.protocol.map``."""
    protocols: dict[str, str] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        name, _, protocol = (part.strip().upper() for part in item.partition(":"))
        if not name or protocol not in _PROTOCOLS or protocols.get(name, protocol) != protocol:
            raise ConfigError(
                f"listener.security.protocol.map={shown(item)} is not allowed: write NAME:PROTOCOL, "
                "each name once, such as INTERNAL:PLAINTEXT"
            )
        protocols[name] = protocol
    return protocols
