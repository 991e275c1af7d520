"""Ports that stay nobody's while a test has a use for that."""

from __future__ import annotations

import socket

from barnabas.base.system.sockets import claim_alone


def held_port(port: int = 0) -> socket.socket:
    """A socket on a port of the loopback interface that the system gives to nobody else until it is closed.

    Nobody listens there: a connection is refused. On Linux a server may be started there beside it.
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
    """Sockets as of `held_port` on successive ports, as the brokers of `cluster start` have them."""
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
