"""Addresses that one process alone may listen on."""

from __future__ import annotations

import os
import socket


def claim_alone(sock: socket.socket) -> None:
    """Before `bind`: a port that was just given up can be taken at once, and one in use cannot.

    On Windows SO_REUSEADDR would let two processes listen on one port.
    """
    if os.name == "nt":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)  # type: ignore[attr-defined]
    else:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
