"""A whole broker and its clients in virtual time, from some dozens of seeds; `make simulate` runs more."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from soak.simulated import __main__ as simulated
from soak.simulated.bugs import BUGS
from soak.simulated.run import Outcome, simulate

#: seconds of faults, of virtual time
STORM = 6.0
SEEDS = 24


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_broker_keeps_its_promises_to_all_clients(seed):
    outcome = simulate(seed, storm=STORM)
    assert outcome.counts["ack"] > 50
    assert outcome.findings == [], f"python -m soak.simulated --seed {seed} --steps {STORM:g}"


def test_same_seed_is_the_same_run_whatever_the_hash_seed():
    def trace(hash_seed: str) -> str:
        command = [sys.executable, "-m", "soak.simulated", "--seed", "25", "--steps", "8"]
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


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bug_is_gone_afterwards(bug):
    _, plant = BUGS[bug]
    with plant():
        pass
    with plant():
        pass
