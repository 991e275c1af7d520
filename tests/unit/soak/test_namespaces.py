"""Hosts in network namespaces, and dropped packets between them."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest
from soak.namespaces import HERE, Network, NoNetworkError

ECHO = """
import socket, sys
server = socket.create_server((sys.argv[1], 7))
print("ready", flush=True)
connection, _ = server.accept()
while data := connection.recv(100):
    connection.sendall(data)
"""


@pytest.fixture
def network():
    try:
        network = Network([1])
    except NoNetworkError as reason:
        pytest.skip(f"no network namespaces here: {reason}")
    yield network
    network.close()


@pytest.fixture
def connection(network):
    """Connect from this machine to an echo server on host 1."""
    command = [*network.launcher(1), sys.executable, "-c", ECHO, network.address(1)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout.readline() == b"ready\n"
            with socket.create_connection((network.address(1), 7), 30) as connection:
                yield connection
        finally:
            server.kill()


def echoes(connection, seconds):
    connection.settimeout(seconds)
    try:
        return connection.recv(100)
    except TimeoutError:
        return None


def test_networks_that_are_made_at_the_same_time_have_different_subnets(monkeypatch):
    """Two workers of pytest, or a soak and a test. Before, the later one failed: "File exists"."""
    monkeypatch.setattr(Network, "_make", lambda _: None)  # neither has its routes yet
    try:
        first, second = Network([1]), Network([1])
    except NoNetworkError as reason:
        pytest.skip(f"no network namespaces here: {reason}")
    assert first.address(1) != second.address(1)
    first.close()
    second.close()


@pytest.mark.parametrize("way", [(HERE, 1), (1, HERE)])
def test_what_is_sent_over_a_cut_way_arrives_after_the_healing(network, connection, way):
    network.cut([way])
    network.cut([way])
    connection.sendall(b"x")
    network.heal([way])
    assert network.is_cut(1)
    assert echoes(connection, 0.5) is None, "it was cut twice, and healed once"
    network.heal([way])
    assert not network.is_cut(1)
    assert echoes(connection, 30) == b"x"
