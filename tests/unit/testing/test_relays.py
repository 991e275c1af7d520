"""The relays between the brokers of a cluster under test."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from barnabas.testing.relays import Relays


class Peer:
    """A server in place of a broker."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(10)
        self.port = self.server.getsockname()[1]

    def accept(self) -> socket.socket:
        connection, _ = self.server.accept()
        connection.settimeout(10)
        return connection


@pytest.fixture
def peers() -> Iterator[dict[int, Peer]]:
    peers = {1: Peer(), 2: Peer()}
    yield peers
    for peer in peers.values():
        peer.server.close()


@pytest.fixture
def relays(peers: dict[int, Peer]) -> Iterator[tuple[Relays, dict[tuple[int, int], int]]]:
    relays = Relays()
    ports = relays.start({broker: peer.port for broker, peer in peers.items()})
    yield relays, ports
    relays.stop()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def is_silent(connection: socket.socket) -> bool:
    connection.settimeout(0.1)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(10)
    return False


def test_what_is_said_arrives_both_ways(peers, relays):
    _, ports = relays
    with connect(ports[1, 2]) as one, peers[2].accept() as two:
        one.sendall(b"ask")
        assert two.recv(10) == b"ask"
        two.sendall(b"answer")
        assert one.recv(10) == b"answer"


def test_a_cut_holds_back_one_way_in_every_connection_until_it_is_healed(peers, relays):
    cuts, ports = relays
    with (
        connect(ports[1, 2]) as to_two,
        peers[2].accept() as at_two,
        connect(ports[2, 1]) as to_one,
        peers[1].accept() as at_one,
    ):
        cuts.cut([(1, 2)])
        to_two.sendall(b"request")
        at_one.sendall(b"answer")
        assert is_silent(at_two), "1 says nothing to 2 as a client"
        assert is_silent(to_one), "nor as a server"
        at_two.sendall(b"b")
        assert to_two.recv(10) == b"b", "2 still reaches 1"
        to_one.sendall(b"c")
        assert at_one.recv(10) == b"c"
        cuts.heal()
        assert at_two.recv(10) == b"request"
        assert to_one.recv(10) == b"answer"


def test_a_new_connection_says_nothing_across_a_cut(peers, relays):
    cuts, ports = relays
    cuts.cut([(1, 2)])
    with connect(ports[1, 2]) as one, peers[2].accept() as two:
        one.sendall(b"x")
        assert is_silent(two)


def test_an_end_is_passed_on(peers, relays):
    _, ports = relays
    with connect(ports[1, 2]) as one:
        with peers[2].accept() as two:
            two.sendall(b"last words")
        assert one.recv(100) == b"last words"
        assert one.recv(100) == b""


def test_a_connection_to_nobody_ends(peers, relays):
    _, ports = relays
    peers[2].server.close()
    with connect(ports[1, 2]) as one, contextlib.suppress(ConnectionError):
        assert one.recv(1) == b""
