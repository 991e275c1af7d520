"""Test runs in the background, and test runs that are terminated: small runs of pytest inside this one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a run's children end with it on Linux alone")

TENDED = """
from tests import children, forked_barnabas

def pytest_configure():
    children.tend()
    forked_barnabas.fork_from_now_on()
"""
SIGNALS = """
import signal, subprocess, sys

def test_children_have_the_default_signals():
    ask = "import signal as s; print(*(s.getsignal(n) is s.SIG_IGN for n in (s.SIGINT, s.SIGHUP)))"
    assert subprocess.check_output([sys.executable, "-c", ask], text=True).split() == ["False", "False"]

def test_the_run_goes_on_ignoring_them():
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGHUP)
"""
#: a broker process, what it was forked from, a group of two processes of which only the second lives, and one
#: that stands still
LASTING = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
from barnabas.testing import BarnabasBroker

def test_that_does_not_end(request, tmp_path):
    with BarnabasBroker(mode="process") as broker:
        pids = [os.getpid(), broker._runner._process.pid]
        if forked_barnabas := sys.modules.get("tests.forked_barnabas"):
            pids.append(forked_barnabas.server().pid)
        command = ["sh", "-c", "sleep 1000 & echo $!"]
        parent = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        pids.append(int(parent.stdout.readline()))
        parent.wait()
        pids.append(subprocess.Popen(["sleep", "1000"]).pid)
        os.kill(pids[-1], signal.SIGSTOP)
        notes = Path(os.environ["NOTES"])
        (notes / "new").write_text(json.dumps(pids))
        (notes / "new").rename(notes / "pids")
        time.sleep(1000)
"""


class Run:
    """A process that runs pytest on one file."""

    def __init__(
        self, folder: Path, text: str, *options: str, conftest: str = TENDED, shell: str = ""
    ) -> None:
        (folder / "conftest.py").write_text(conftest)
        (folder / "test_it.py").write_text(text)
        self._output = folder / "output"
        self._notes = folder / "notes"
        self._notes.mkdir()
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder), *options]
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                ["sh", "-c", f'{shell} exec "$@"', "sh", *words, f"--rootdir={folder}", "-c", os.devnull],
                env={**os.environ, "PYTHONPATH": str(ROOT), "NOTES": str(self._notes)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self) -> str:
        return self._output.read_text()

    def destroy(self) -> None:
        """Kill all processes if the test fails."""
        self.process.kill()
        self.process.wait()
        for pid in filter(runs, self.pids() if (self._notes / "pids").exists() else []):
            os.kill(pid, signal.SIGKILL)

    def pids(self) -> list[int]:
        """Return the ids of the test's process and of the processes that it has started."""
        while not (self._notes / "pids").exists():
            assert self.process.poll() is None, self.said
            time.sleep(0.05)
        pids: list[int] = json.loads((self._notes / "pids").read_text())
        return pids


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Start a run."""
    with contextlib.ExitStack() as started:

        def start(*arguments: str, **more: str) -> Run:
            run = Run(tmp_path, *arguments, **more)
            started.callback(run.destroy)
            return run

        yield start


def runs(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def all_end(pids: list[int]) -> bool:
    deadline = time.monotonic() + 60
    while any(map(runs, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(runs, pids))


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["alone", "xdist"])
def test_in_the_background_and_by_nohup_children_hear_ctrl_c_and_hangups(run, workers):
    it = run(SIGNALS, *workers, shell="trap '' INT HUP;")
    assert it.process.wait() == 0, it.said


def test_the_test_of_ctrl_c_passes_in_the_background():
    test = "tests/integration/cli/test_cli_terminal.py::test_ctrl_c_ends_with_130"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=120", test]
    done = subprocess.run(
        ["sh", "-c", "trap '' INT HUP; exec \"$@\"", "sh", *command], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["alone", "xdist"])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_terminated_run_leaves_no_process(run, how, workers):
    it = run(LASTING, *workers)
    pids = it.pids()
    it.process.send_signal(how)
    assert it.process.wait() == -how
    assert all_end(pids)


def test_a_worker_that_is_killed_leaves_no_process(run):
    it = run(LASTING, "-n", "1", "--max-worker-restart=0")
    pids = it.pids()
    os.kill(pids[0], signal.SIGKILL)
    assert all_end(pids)
    assert it.process.wait() != 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_broker_process_of_a_users_tests_ends_with_them(run, how):
    it = run(LASTING, conftest="")
    _, broker, *others = it.pids()
    it.process.send_signal(how)
    assert all_end([broker])
    assert all(map(runs, others))  # what the tests start by themselves is not ours to end
