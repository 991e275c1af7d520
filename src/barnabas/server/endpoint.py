"""Where a listener binds and where clients are told to connect: ``NAME://HOST:PORT``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from barnabas.config import BrokerConfig
from barnabas.errors import ConfigError

_PATTERN = re.compile(
    r"(?P<name>[A-Za-z0-9_-]+)://(?:\[(?P<v6>[0-9a-fA-F:.%]+)\]|(?P<host>[^:\[\]/]*)):(?P<port>\d{1,5})"
)

#: what cannot be connected to: a listener on it needs an advertised name
_WILDCARDS = ("", "0.0.0.0", "::")


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
                f"{setting}={text} is not allowed: write NAME://HOST:PORT, such as PLAINTEXT://127.0.0.1:9092"
            )
        return cls(match["name"].upper(), match["v6"] or match["host"], int(match["port"]))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def bound_endpoints(config: BrokerConfig) -> list[Endpoint]:
    """What ``listeners`` asks to bind.

    Raises:
        ConfigError: an item cannot be read, a name is used twice, or there is none.
    """
    endpoints = _parse_all(config.listeners, "listeners")
    if not endpoints:
        raise ConfigError("listeners is empty: name at least one, such as PLAINTEXT://127.0.0.1:9092")
    return endpoints


def advertised_endpoints(config: BrokerConfig, bound: list[Endpoint]) -> list[Endpoint]:
    """What clients are told, for each of `bound` (with its real port) in that order.

    A port of 0 in ``advertised.listeners`` stands for the port that was bound.

    Raises:
        ConfigError: a name is not in ``listeners``, or an address cannot be connected to.
    """
    advertised = {e.name: e for e in _parse_all(config.advertised_listeners, "advertised.listeners")}
    unknown = advertised.keys() - {e.name for e in bound}
    if unknown:
        raise ConfigError(
            f"advertised.listeners names {', '.join(sorted(unknown))}, which listeners does not"
        )
    result = []
    for endpoint in bound:
        told = advertised.get(endpoint.name, endpoint)
        if told.host in _WILDCARDS:
            raise ConfigError(
                f"{told} cannot be advertised, since clients cannot connect to it: "
                f"set advertised.listeners={endpoint.name}://HOST:{endpoint.port} with this machine's name"
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
