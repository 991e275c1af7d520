"""Valid values of zookeeper.connect."""

from __future__ import annotations

import pytest

from barnabas.base.errors import ConfigError
from barnabas.broker.metadata.zookeeper.address import parse_address, unix_address


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("zk1:2181", ("zk1:2181",), ""),
        ("zk1", ("zk1:2181",), ""),
        ("zk1:1, zk2:2,zk3", ("zk1:1", "zk2:2", "zk3:2181"), ""),
        ("zk1:1,zk2:2/prod", ("zk1:1", "zk2:2"), "/prod"),
        ("zk1:1/prod/kafka/", ("zk1:1",), "/prod/kafka"),
        ("zk1:1/", ("zk1:1",), ""),
        ("[::1]:2182,[fe80::2]/x", ("[::1]:2182", "[fe80::2]:2181"), "/x"),
    ],
)
def test_servers_and_chroot_are_told_apart(text: str, servers: tuple[str, ...], chroot: str) -> None:
    address = parse_address(text)
    assert (address.servers, address.chroot) == (servers, chroot)
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "zk1:",
        "zk1:0",
        "zk1:65536",
        "zk1:x",
        ":2181",
        "::1",
        "zk 1",
        "zk1/a//b",
        "zk1/../b",
        "zk1:1/a\0",
    ],
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect=.*zk1:2181,zk2:2181/prod"):
        parse_address(text)


def test_server_at_a_unix_socket_has_a_path_and_no_chroot() -> None:
    address = parse_address(unix_address("/tmp/x/store"))
    assert (str(address), address.chroot) == ("unix:/tmp/x/store", "")
    assert address.socket_path == "/tmp/x/store"
    assert parse_address("zk1:2181/prod").socket_path is None
    with pytest.raises(ConfigError, match="no absolute path after unix:"):
        parse_address("unix:store")
