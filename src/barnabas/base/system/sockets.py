"""Binds addresses for one process only, and connects to sockets with a path."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

from barnabas.base.errors import ConfigError


def claim_alone(sock: socket.socket) -> None:
    """Set a socket's options so that `bind` accepts a port that was just closed, but no port in use.

    On Windows SO_REUSEADDR would let two processes listen on one port.
    """
    if os.name == "nt":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)  # type: ignore[attr-defined]
    else:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def claim_address(listen: str, who: str, example: str) -> socket.socket:
    """Return a socket that is bound to `listen` (HOST:PORT), but does not listen yet.

    An empty host means 127.0.0.1, and port 0 a free port.

    Args:
        who: the server that will listen there, for messages.
        example: a valid address, for messages.

    Raises:
        ConfigError: the address is not valid or is in use.
    """
    host, _, port = listen.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{who} cannot listen on {listen}: write HOST:PORT, such as {example}")
    host = host.strip("[]") or "127.0.0.1"
    claimed = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    claim_alone(claimed)
    try:
        claimed.bind((host, int(port)))
    except OSError as error:
        claimed.close()
        raise ConfigError(
            f"{who} cannot listen on {listen}: {error.strerror}; choose another address"
        ) from None
    return claimed


def has_local_sockets() -> bool:
    """Whether the system has sockets with a path (Unix)."""
    return hasattr(socket, "AF_UNIX")


def connect_local(path: str, timeout: float) -> socket.socket:
    """Return a connection to the Unix socket at `path`. Raises OSError, also after `timeout` seconds."""
    connected = socket.socket(socket.AF_UNIX)
    try:
        connected.settimeout(timeout)
        connected.connect(path)
    except BaseException:
        connected.close()
        raise
    return connected


def remove_if_dead(path: Path) -> None:
    """Remove the Unix socket at `path` if no process listens there, and then its folder if it is empty.

    Do nothing if there is another file at `path`, or if the system does not say whether a process listens.
    """
    try:
        if path.is_socket():
            connect_local(str(path), 1).close()
    except ConnectionRefusedError:
        with suppress(OSError):
            path.unlink()
            path.parent.rmdir()
    except OSError:
        return
