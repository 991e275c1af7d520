"""Tests of a group run in one worker of pytest-xdist: they share what their module or session starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

GROUP = """
import os
from pathlib import Path

import pytest

@pytest.mark.xdist_group("together")
@pytest.mark.parametrize("number", range(4))
def test_of_a_group(number):
    with Path("workers").open("a") as workers:
        print(os.environ["PYTEST_XDIST_WORKER"], file=workers)
"""


def test_one_of_two_workers_runs_a_group(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_collection_finish\n")
    (tmp_path / "test_it.py").write_text(GROUP)
    words = ["-q", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider", "--rootdir", ".", "-c"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, os.devnull, "test_it.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    workers = (tmp_path / "workers").read_text().split()
    assert len(workers) == 4
    assert len(set(workers)) == 1
