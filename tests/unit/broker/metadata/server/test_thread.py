"""The socket of a server whose process was killed."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest

from barnabas.broker.metadata.server.thread import StoreServerThread, remove_dead_socket
from barnabas.broker.metadata.zookeeper.address import parse_address, unix_address


def socket_of(address: str) -> Path:
    path = parse_address(address).socket_path
    assert path is not None
    return Path(path)


@pytest.fixture
def dead(tmp_path: Path) -> str:
    """Return the address of a server that was killed: the file of its socket is still there."""
    with StoreServerThread([tmp_path]) as server:
        address = server.address
    path = socket_of(address)
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    return address


def test_the_socket_of_a_killed_server_is_removed_with_its_folder(dead: str) -> None:
    remove_dead_socket(dead)
    assert not socket_of(dead).parent.exists()
    remove_dead_socket(dead)


def test_the_socket_of_a_server_that_serves_stays(tmp_path: Path) -> None:
    with StoreServerThread([tmp_path]) as server:
        remove_dead_socket(server.address)
        assert socket_of(server.address).exists()


def test_a_folder_with_another_file_stays(dead: str) -> None:
    folder = socket_of(dead).parent
    try:
        (folder / "mine").touch()
        remove_dead_socket(dead)
        assert [path.name for path in folder.iterdir()] == ["mine"]
    finally:
        shutil.rmtree(folder)


def test_another_file_and_the_address_of_a_zookeeper_stay(tmp_path: Path) -> None:
    file = tmp_path / "barnabas-1" / "store"
    file.parent.mkdir()
    file.write_text("mine")
    for address in (unix_address(str(file)), "127.0.0.1:2181/prod", "unix:nowhere", ""):
        remove_dead_socket(address)
    assert file.read_text() == "mine"
