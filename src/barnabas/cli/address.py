"""HOST:PORT in the options of `start` and `registry`."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

import click

from barnabas.base.text import quoted

_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?")


class Address(NamedTuple):
    """A host, in the form that URLs have (IPv6 in brackets), and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_address(
    text: str, option: str, example: str, *, default_host: str = "", default_port: int | None = None
) -> Address:
    """Parse `text`, the value of the command's option with the name `option`.

    Args:
        default_host: the host if `text` has none; without a default a host is required.
        default_port: the port if `text` has none; without a default a port is required.

    Raises:
        click.UsageError: `text` is not an address; the message gives `example`.
    """
    host, port = _split(text, default_port)
    host = host or default_host
    if not _is_host(host) or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        form = "HOST:PORT" if default_port is None else "HOST or HOST:PORT"
        raise click.UsageError(f"{option} {quoted(text)}: write {form}, for example {example}")
    return Address(host, int(port))


def _split(text: str, default_port: int | None) -> tuple[str, str]:
    if default_port is not None and (":" not in text or text.endswith("]")):
        return text, str(default_port)
    host, _, port = text.rpartition(":")
    return host, port


def _is_host(text: str) -> bool:
    if text.startswith("[") and text.endswith("]"):
        try:
            return ipaddress.ip_address(text[1:-1]).version == 6
        except ValueError:
            return False
    return len(text) <= 255 and _HOST_NAME.fullmatch(text) is not None
