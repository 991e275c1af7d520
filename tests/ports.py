"""Ports that stay reserved while a test needs them."""

from __future__ import annotations

import socket

from barnabas.base.system.sockets import claim_alone


def held_port(port: int = 0) -> socket.socket:
    """Return a socket on a port of the loopback interface, which the system gives to no other process.

    It does not listen, so connections are refused. On Linux, a server can start on the port at the same time.
    """
    held = socket.socket()
    claim_alone(held)
    try:
        held.bind(("127.0.0.1", port))
    except OSError:
        held.close()
        raise
    return held


def held_row(count: int) -> list[socket.socket]:
    """Return sockets like those of `held_port` on successive ports, as `cluster start` needs them."""
    while True:
        row = [held_port()]
        first = row[0].getsockname()[1]
        try:
            row.extend(held_port(port) for port in range(first + 1, first + count))
        except (OSError, OverflowError):  # somebody has it, or there is none
            for held in row:
                held.close()
        else:
            return row
