"""A broker that cannot go on stops, rather than serve what the cluster has not decided."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.config import BrokerConfig
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
        Admin(server.bootstrap_servers, timeout=5).create_topic("t")
    thread.join(60)
    with pytest.raises(BrokerFailedError, match=r"could not be applied.*on purpose"):
        server.stop()
    server.stop()
    assert "broker 1 has to stop" in caplog.text
