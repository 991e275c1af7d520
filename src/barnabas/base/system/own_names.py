"""Lists the valid ``Host`` headers of a local HTTP server.

A page of another site can point its own name to this machine (DNS rebinding). Its requests have that name in
``Host``.
"""

from __future__ import annotations

import ipaddress
import socket


def own_names(claimed: socket.socket, scheme: str) -> frozenset[str] | None:
    """Return the valid ``Host`` headers, in lower case, of a server that only this machine can reach.

    Args:
        claimed: the bound socket of the server.
        scheme: ``http`` or ``https``. A header may leave out the usual port of the scheme.

    Returns:
        The headers; None if other machines can reach the server, because their names for it are unknown.
    """
    host, port = claimed.getsockname()[:2]
    if not ipaddress.ip_address(host).is_loopback:
        return None
    names = {f"[{host}]" if ":" in host else host, "localhost", "127.0.0.1", "[::1]"}
    usual = {"http": 80, "https": 443}[scheme]
    return frozenset({f"{name}:{port}" for name in names} | (names if port == usual else set()))
