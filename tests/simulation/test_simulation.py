"""A whole broker, or a cluster, and its clients in virtual time; `make simulate` runs more seeds."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from soak.simulated import __main__ as simulated
from soak.simulated.bugs import BUGS
from soak.simulated.cluster_bugs import CLUSTER_BUGS
from soak.simulated.run import Outcome, planted, simulate
from soak.simulated.share_bugs import SHARE_BUGS, SHARE_CLUSTER_BUGS

#: seconds of faults, of virtual time
STORM = 6.0
SEEDS = 24
#: numbers of brokers, and seeds
CLUSTERS = ((3, 2), (3, 3), (3, 4), (5, 6))


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_broker_keeps_its_promises_to_all_clients(seed):
    outcome = simulate(seed, storm=STORM)
    assert outcome.counts["ack"] > 50
    assert outcome.findings == [], f"python -m soak.simulated --seed {seed} --steps {STORM:g}"


@pytest.mark.parametrize(("brokers", "seed"), CLUSTERS)
def test_cluster_keeps_its_promises_to_all_clients(brokers, seed):
    outcome = simulate(seed, brokers=brokers, storm=STORM)
    assert outcome.counts["ack"] > 50
    assert outcome.findings == [], (
        f"python -m soak.simulated --brokers {brokers} --seed {seed} --steps {STORM:g}"
    )


def test_check_that_began_with_another_controller_does_not_isolate_a_broker():
    assert simulate(830066, brokers=3).findings == []
    found = simulate(830066, brokers=3, bug=planted("overtaken-check-counts"))
    assert found.kinds == ["isolated-early"]


def test_broker_that_starts_with_an_empty_disk_is_not_counted_on():
    assert simulate(840006, brokers=3).findings == []
    found = simulate(840006, brokers=3, bug=planted("empty-disk-counts"))
    assert "incomplete-replica" in found.kinds


@pytest.mark.parametrize("brokers", [1, 3])
def test_same_seed_is_the_same_run_whatever_the_hash_seed(brokers):
    def trace(hash_seed: str) -> str:
        command = [sys.executable, "-m", "soak.simulated", "--seed", "25", "--steps", "4"]
        command += ["--brokers", str(brokers)]
        run = subprocess.run(
            command,
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        )
        return run.stdout.rpartition("trace ")[2]

    assert trace("1") == trace("2")


def test_other_seed_is_another_run():
    assert simulate(26, storm=0.5).digest != simulate(27, storm=0.5).digest


def test_seed_that_fails_is_reported_with_the_command_that_repeats_it(monkeypatch, capsys):
    found = Outcome(7, findings=[("lost-write", "a record is gone")])
    monkeypatch.setattr(simulated, "outcomes", lambda options, bug: iter([Outcome(6), found]))
    monkeypatch.setattr(sys, "argv", ["simulate", "--steps", "4", "--bug", "fsync-skipped"])
    assert simulated.main() == 1
    said = capsys.readouterr().out
    assert "seed 7: python -m soak.simulated --seed 7 --steps 4 --bug fsync-skipped" in said
    assert "a record is gone" in said
    assert "seed 6" not in said


@pytest.mark.parametrize("bug", BUGS | CLUSTER_BUGS | SHARE_BUGS | SHARE_CLUSTER_BUGS)
def test_planted_bug_is_gone_afterwards(bug):
    with planted(bug):
        pass
    with planted(bug):
        pass
