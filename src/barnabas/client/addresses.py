"""Parses bootstrap servers: ``host:port,...``."""

from __future__ import annotations

import re
from typing import NamedTuple

from barnabas.client.errors import ClientError

_EXAMPLE = "127.0.0.1:9092"
#: a host name, an IPv4 address, or an IPv6 address in brackets
_ADDRESS = re.compile(
    r"(?P<host>[^\s:/\[\]]+|\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%\w+)?\]):(?P<port>\d{1,5})", re.ASCII
)


class Address(NamedTuple):
    """The address of a broker; an IPv6 host has no brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_servers(text: str) -> list[Address]:
    """Return the addresses in `text` (``host:port,...``). The result is never empty.

    Raises:
        ClientError: an item is not HOST:PORT.
    """
    return [_parse(part.strip(), text) for part in text.split(",")]


def _parse(part: str, text: str) -> Address:
    if not part:
        where = f" in {text!r}" if text.strip() else ""
        raise ClientError(f"an address is empty{where}: write HOST:PORT, for example {_EXAMPLE}")
    if "://" in part:
        raise ClientError(f"{part!r} is not HOST:PORT: leave out {part.partition('://')[0]}://")
    match = _ADDRESS.fullmatch(part)
    if match is None:
        raise ClientError(f"{part!r} is not HOST:PORT, for example {_EXAMPLE}")
    port = int(match["port"])
    if not 1 <= port <= 65535:
        raise ClientError(f"{part!r}: a port is a number from 1 to 65535")
    return Address(match["host"].strip("[]"), port)
