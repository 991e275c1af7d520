"""A broker that cannot continue stops. It must not serve what the cluster has not decided."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.config import BrokerConfig
from barnabas.broker.coordinator import GroupCoordinator
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.server.broker import BrokerFailedError
from barnabas.broker.server.run import BrokerServer
from barnabas.client import Admin


def test_broker_that_fails_to_apply_a_change_of_the_metadata_stops_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(self: ReplicaManager, delta: object) -> None:
        raise RuntimeError("on purpose")

    config = BrokerConfig(listeners=("PLAINTEXT://127.0.0.1:0",), log_dirs=(str(tmp_path),))
    server = BrokerServer(config).start()
    thread = server._thread
    assert thread is not None
    monkeypatch.setattr(ReplicaManager, "apply", broken)
    with pytest.raises(Exception, match=r"."):  # whatever the client makes of a broker that goes
        Admin(server.bootstrap_servers, timeout=10).create_topic("t")
    thread.join(60)
    with pytest.raises(BrokerFailedError, match=r"could not be applied.*on purpose"):
        server.stop()
    server.stop()
    assert "broker 1 has to stop" in caplog.text


def test_broker_whose_vital_task_fails_stops_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: GroupCoordinator) -> None:
        raise RuntimeError("on purpose")

    config = BrokerConfig(listeners=("PLAINTEXT://127.0.0.1:0",), log_dirs=(str(tmp_path),))
    monkeypatch.setattr(GroupCoordinator, "_expire_regularly", broken)
    server = BrokerServer(config).start()
    assert server._thread is not None
    server._thread.join(60)
    with pytest.raises(BrokerFailedError, match=r"'expiry of offsets' failed \(RuntimeError: on purpose\)"):
        server.stop()


def test_broker_logs_the_error_of_a_timer_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise RuntimeError("on purpose")

    config = BrokerConfig(listeners=("PLAINTEXT://127.0.0.1:0",), log_dirs=(str(tmp_path),))
    with BrokerServer(config) as server:
        server._loop.call_soon_threadsafe(server._loop.call_later, 0, broken)
        Admin(server.bootstrap_servers, timeout=30).create_topic("t")
    assert "on purpose" in caplog.text
    assert "broken" in caplog.text
