"""The name and address of this machine for clients."""

import os
import socket
from pathlib import Path

import pytest

from barnabas.base.environment import machine


@pytest.fixture
def resolver(monkeypatch):
    """Set the name of this machine, and the (address, canonical name) to which it resolves, or nothing."""

    def know(name, *found):
        def resolve(*_arguments, **_options):
            if not found:
                raise socket.gaierror(socket.EAI_NONAME, "not known")
            return [
                (socket.AF_INET, socket.SOCK_STREAM, 6, canonical, (address, 0))
                for address, canonical in found
            ]

        monkeypatch.setattr(socket, "gethostname", lambda: name)
        monkeypatch.setattr(socket, "getaddrinfo", resolve)

    return know


def test_the_canonical_name_is_told(resolver):
    resolver("laptop", ("127.0.0.1", "laptop.lan"))
    assert machine.machine_name() == "laptop.lan"


def test_a_name_that_is_another_one_of_localhost_is_told_as_it_is(resolver):
    resolver("laptop", ("127.0.0.1", "localhost.localdomain"))
    assert machine.machine_name() == "laptop"


@pytest.mark.parametrize("found", [(), (("192.0.2.77", "somebody-else"),)])
def test_a_name_that_does_not_lead_here_gives_way_to_the_address(resolver, found):
    resolver("laptop", *found)
    address = machine.machine_name()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((address, 0))


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux")
def test_who_listens_on_a_port_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert f"process {os.getpid()} (" in (machine.port_owner(taken.getsockname()[1]) or "")
    assert machine.port_owner(1) is None
