"""The output of `barnabas cluster status`."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cli.cluster.commands import _print_status


def status(*states: str) -> dict[str, Any]:
    """Return the status of a cluster whose first broker is the controller and leads all partitions."""
    return {
        "brokers": [
            {
                "id": number,
                "address": f"127.0.0.1:{number}",
                "rack": None,
                "state": state,
                "process": None,
                "leads": 4 if number == 1 else 0,
                "is_controller": number == 1,
            }
            for number, state in enumerate(states, 1)
        ],
        "zookeeper": "127.0.0.1:2181",
        "zookeeper_process": None,
        "zookeeper_answers": True,
        "partitions": 4,
        "under_replicated": [],
        "without_leader": [],
    }


def test_a_broker_that_is_dead_and_not_missed_yet_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    _print_status(status("killed", "running"))
    assert "Not missed yet    1: the others notice when its session ends\n" in capsys.readouterr().out


def test_brokers_whose_end_was_noticed_are_not_named(capsys: pytest.CaptureFixture[str]) -> None:
    _print_status(status("running", "killed"))
    assert "Not missed" not in capsys.readouterr().out
