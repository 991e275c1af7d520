"""`barnabas start` warns of a default replication factor that its brokers cannot meet."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from barnabas.cli.app import app


@pytest.fixture
def warnings_of(tmp_path, monkeypatch, caplog):
    """``warnings_of(*options)``: return the log of `barnabas start`, whose brokers do not run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("barnabas.broker.server.run.run", lambda *_: None)
    monkeypatch.setattr("barnabas.cli.start.machine.run_cluster", lambda *_: None)

    def run(*options):
        caplog.clear()
        result = CliRunner().invoke(app, ["start", *options], prog_name="barnabas", catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return caplog.text

    return run


THREE = ("--set", "default.replication.factor=3")


@pytest.mark.parametrize("options", [(), ("--brokers", "1"), ("--brokers", "2")], ids=str)
def test_a_default_factor_above_the_number_of_brokers_is_named(warnings_of, options):
    assert "default.replication.factor=3 needs 3 brokers" in warnings_of(*options, *THREE)


def test_a_default_factor_that_the_brokers_meet_is_not_named(warnings_of):
    assert "default.replication.factor" not in warnings_of("--brokers", "3", *THREE)
    assert "default.replication.factor" not in warnings_of("--brokers", "3")


def test_a_broker_of_a_cluster_in_zookeeper_does_not_count_the_others(warnings_of):
    zookeeper = ("--set", "zookeeper.connect=127.0.0.1:1")
    assert "default.replication.factor" not in warnings_of(*zookeeper, *THREE)
