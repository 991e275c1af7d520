"""Nights: their results stay after any end, and the next night continues after them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from soak import night
from soak.night import SEEDS, Done, Kind, Nights, report, run

ROOT = Path(night.__file__).resolve().parent.parent
CLUSTERS, ONE, UNCLEAN = SEEDS


def done(seed: int, kind: Kind = CLUSTERS, *found: str, commit: str = "abc") -> Done:
    findings = [(each, "text") for each in found]
    return Done(commit, kind.name, seed, 36.0, "2026-11-27", findings, {"ack": 1})


def test_a_night_goes_on_behind_the_last_one(tmp_path):
    assert Nights(tmp_path).next_turn([CLUSTERS]) == (CLUSTERS, CLUSTERS.first)
    for seed in range(CLUSTERS.first, CLUSTERS.first + 3):
        Nights(tmp_path).add(done(seed))
    assert Nights(tmp_path).next_turn([CLUSTERS]) == (CLUSTERS, CLUSTERS.first + 3)


def test_each_kind_gets_its_part(tmp_path):
    nights = Nights(tmp_path)
    for _ in range(100):
        kind, seed = nights.next_turn(SEEDS)
        nights.add(done(seed, kind))
    counts = [sum(each.kind == kind.name for each in nights.done()) for kind in SEEDS]
    assert counts == [80, 10, 10]


def test_a_line_that_a_kill_has_cut_short_costs_its_seed_alone(tmp_path):
    nights = Nights(tmp_path)
    nights.add(done(CLUSTERS.first))
    nights.add(done(CLUSTERS.first + 1))
    file = tmp_path / "done.jsonl"
    file.write_text(file.read_text()[:-20])
    nights = Nights(tmp_path)
    assert nights.next_turn([CLUSTERS]) == (CLUSTERS, CLUSTERS.first + 1)
    nights.add(done(CLUSTERS.first + 1))
    assert [each.seed for each in Nights(tmp_path).done()] == [CLUSTERS.first, CLUSTERS.first + 1]


def test_the_report_says_how_many_seeds_of_which_commit_found_what(tmp_path):
    nights = Nights(tmp_path)
    for each in (
        done(1),
        done(2, CLUSTERS, "lost-write", "lost-write", "duplicate"),
        done(7, ONE),
        done(3, CLUSTERS, "lost-write", commit="def"),
    ):
        nights.add(each)
    rows = report(nights).splitlines()[2:]
    assert rows == [
        "| 2026-11-27 | abc | clusters of three | 2: 1 to 2 | 0.02 "
        "| 1: `lost-write` 1, `duplicate` 1; seeds 2 |",
        "| 2026-11-27 | abc | one broker | 1: 7 to 7 | 0.01 | none |",
        "| 2026-11-27 | def | clusters of three | 1: 3 to 3 | 0.01 | 1: `lost-write` 1; seeds 3 |",
        "| all | | clusters of three | 3 | 0.03 | 2 |",
        "| all | | one broker | 1 | 0.01 | 0 |",
    ]


@pytest.fixture
def code(tmp_path, monkeypatch):
    """Return a copy of the code in which a module of the test replaces the original."""

    def made(source: str) -> Path:
        folder = tmp_path / "code"
        folder.mkdir()
        (folder / "played.py").write_text(source)
        monkeypatch.setattr(night, "copied", lambda _: ("abc", folder))
        return folder

    return made


class _Played(Kind):
    def command(self, seed: int) -> list[str]:
        return ["played", str(seed)]


PLAYED = _Played("played", (), 1)
LINE = '{"seed": %d, "seconds": 1.0, "findings": %s, "counts": {}}'


def test_seeds_are_kept_as_they_end(tmp_path, code, capsys):
    code(
        "import sys\n"
        "first = int(sys.argv[1])\n"
        "print('something else')\n"
        f"print({LINE!r} % (first, '[]'), flush=True)\n"
        f'print({LINE!r} % (first + 1, \'[["lost-write", "gone"]]\'), flush=True)\n'
        "sys.exit(1 if first > 200000 else 0)\n"
    )
    nights = Nights(tmp_path)
    assert run(nights, [PLAYED], minutes=0) == 0
    assert [each.seed for each in nights.done()] == [200_000]
    with pytest.raises(SystemExit, match="ended without an outcome"):
        code_that_says_nothing(tmp_path)
        run(nights, [PLAYED], minutes=None)
    assert [(each.seed, each.findings) for each in nights.done()] == [(200_000, [])]


def code_that_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "code" / "played.py").write_text("raise SystemExit(3)\n")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a git checkout for a night of soaks, because CI runs the tests in a copy without a history."""
    folder = tmp_path / "checkout"
    for part in night._CODE:
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    author = ("-c", "user.name=tester", "-c", "user.email=tester@localhost")
    for command in (("init", "-q"), ("add", "."), (*author, "commit", "-q", "-m", "a commit")):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


def test_a_night_runs_the_commit_that_is_checked_out_and_can_be_stopped(tmp_path, checkout):
    environment = {**os.environ, "PYTHONPATH": f"{checkout}"}
    command = [sys.executable, "-m", "soak.night", "--folder", str(tmp_path)]
    file = tmp_path / "done.jsonl"
    with subprocess.Popen(command, cwd=checkout, env=environment, stdout=subprocess.PIPE) as process:
        while not (file.exists() and file.read_text().endswith("\n")):
            assert process.poll() is None, "the night ended"
            time.sleep(0.05)  # the night has the lowest priority
        process.send_signal(signal.SIGTERM)
        process.communicate()
    commit = subprocess.run(
        ["git", "rev-parse", "--short=10", "HEAD"], cwd=checkout, check=True, capture_output=True, text=True
    ).stdout.strip()
    first = json.loads(file.read_text().splitlines()[0])
    assert (first["commit"], first["seed"], first["findings"]) == (commit, CLUSTERS.first, [])
    assert (tmp_path / "code" / commit / "soak" / "night.py").is_file()


def test_a_night_outside_of_a_checkout_says_so(checkout):
    shutil.rmtree(checkout / ".git")
    command = [sys.executable, "-m", "soak.night", "--folder", str(checkout / "night")]
    environment = {**os.environ, "PYTHONPATH": f"{checkout}", "GIT_CEILING_DIRECTORIES": f"{checkout.parent}"}
    ended = subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("a night runs a commit of a git checkout: fatal: not a git repository")
