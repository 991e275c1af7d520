"""Ports that stay nobody's while a test has a use for that."""

from __future__ import annotations

import socket

from barnabas.system.sockets import claim_alone


def held_port() -> socket.socket:
    """A socket on a port of the loopback interface that the system gives to nobody else until it is closed.

    Nobody listens there: a connection is refused. On Linux a server may be started there beside it.
    """
    held = socket.socket()
    claim_alone(held)
    held.bind(("127.0.0.1", 0))
    return held
