"""A real ZooKeeper from PySpark's jars: its start, its end, and the error if it is missing."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from barnabas.broker.metadata.zookeeper import server
from barnabas.broker.metadata.zookeeper.server import (
    ZooKeeperMissingError,
    ZooKeeperServer,
    ZooKeeperStartError,
)


def test_server_that_has_started_answers_and_one_that_was_stopped_does_not(
    own_zookeeper: ZooKeeperServer,
) -> None:
    assert own_zookeeper.ask("ruok") == "imok"
    assert "Mode: standalone" in own_zookeeper.ask("srvr")
    port, pid = own_zookeeper.port, own_zookeeper.pid
    own_zookeeper.stop()
    own_zookeeper.stop()
    assert own_zookeeper.pid is None
    with pytest.raises(OSError):
        own_zookeeper.ask("ruok")
    own_zookeeper.start(120)
    assert own_zookeeper.port == port
    assert own_zookeeper.pid != pid
    assert own_zookeeper.ask("ruok") == "imok"


def test_port_of_another_zookeeper_is_refused(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    second = ZooKeeperServer(tmp_path, port=zookeeper.port)
    with pytest.raises(ZooKeeperStartError, match=r"Address already in use.*choose another port"):
        second.start()
    assert second.pid is None


def test_server_that_ends_at_once_says_why(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    broken = ZooKeeperServer(tmp_path, heap_mb=1)  # less than Java takes
    with pytest.raises(ZooKeeperStartError, match=r"ended with 1: .*zookeeper\.(out|log)"):
        broken.start(timeout=120)
    assert broken.pid is None


def test_without_java_one_line_names_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ZooKeeperMissingError, match=r"needs Java.*install Java 17") as raised:
        ZooKeeperServer(tmp_path / "zk").start()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("installed", [False, True])
def test_without_pyspark_or_its_jars_one_line_names_the_cure(
    installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.spec_from_loader("pyspark", None, is_package=True) if installed else None
    if spec is not None:
        spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(server.importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(server, "java", lambda: "java")
    with pytest.raises(ZooKeeperMissingError, match=r"comes with PySpark.*pip install") as raised:
        ZooKeeperServer(tmp_path / "zk").start()
    assert "\n" not in str(raised.value)
