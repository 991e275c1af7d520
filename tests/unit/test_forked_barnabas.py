"""Processes that `subprocess.Popen` of the tests forks: no test may see a difference to other processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import forked_barnabas

from barnabas.testing import BarnabasBroker

pytestmark = pytest.mark.skipif(not forked_barnabas.can_fork(), reason="a process has no siblings here")

COMMAND = [sys.executable, "-m", "barnabas.cli"]


#: A process with this variable is started, because Python reads it. Nothing else changes here.
STARTED = {"PYTHONNODEBUGRANGES": "1"}


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list of the ids of processes that are forked from now on."""
    pids: list[int] = []
    fork = forked_barnabas.Server.fork

    def noted(*arguments: Any) -> int | None:
        pid = fork(*arguments)
        pids.extend([pid] if pid else [])
        return pid

    monkeypatch.setattr(forked_barnabas.Server, "fork", noted)
    return pids


@pytest.fixture(params=["forked", "started"])
def environment(request: pytest.FixtureRequest, forked: list[int]) -> Iterator[dict[str, str]]:
    """Return the environment of a process that is forked, and of one that is started."""
    is_started = request.param == "started"
    yield {**os.environ, **(STARTED if is_started else {})}
    assert bool(forked) is not is_started


def serving(folder: Path, environment: dict[str, str], *words: str, **more: Any) -> subprocess.Popen[str]:
    """Return a broker's process when it serves."""
    folder.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [*COMMAND, "start", "--listen", "127.0.0.1:0", "--data", "here", *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        **more,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready ")
    return process


@pytest.fixture
def default_sigquit() -> Iterator[None]:
    """Let SIGQUIT end processes: a shell starts a background process with SIGQUIT ignored.

    The process that forks the brokers ignores it, too, if it runs already.
    """
    forked_barnabas.server()
    before = signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGQUIT, before)


@pytest.mark.usefixtures("default_sigquit")
@pytest.mark.parametrize(
    ("how", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGQUIT, -3), (signal.SIGKILL, -9)]
)
def test_a_signal_ends_a_broker_with_its_exit_code(
    tmp_path: Path, environment: dict[str, str], how: int, code: int
) -> None:
    with serving(tmp_path, environment) as broker:
        assert broker.poll() is None
        broker.send_signal(how)
        try:
            assert broker.wait(60) == code
        finally:
            broker.kill()
    assert (tmp_path / "here" / ".kafka_cleanshutdown").exists() == (code == 0)


def test_a_forked_broker_is_to_the_system_what_a_started_one_is(tmp_path: Path, forked: list[int]) -> None:
    before = os.umask(0o027)
    try:
        variables = os.environ | {"LOG": "x" * 5000}
        brokers = [
            serving(tmp_path / name, variables | more, stdin=subprocess.DEVNULL, start_new_session=True)
            for name, more in (("forked", {}), ("started", STARTED))
        ]
    finally:
        os.umask(before)
    seen = [_seen(broker.pid) for broker in brokers]
    for broker in brokers:
        with broker:
            broker.terminate()
    assert forked == [brokers[0].pid]
    assert seen[0] == seen[1]
    assert seen[0]["PPid"] == str(os.getpid())
    assert seen[0]["Umask"] == "0027"
    assert seen[0]["session"]


def _seen(pid: int) -> dict[str, object]:
    about = Path("/proc") / str(pid)
    status = dict(line.split(":\t", 1) for line in (about / "status").read_text().splitlines())
    return {
        **{name: status[name] for name in ("Name", "PPid", "Umask", "SigBlk", "SigIgn", "SigCgt")},
        "variables": set((about / "environ").read_text().split("\0")) - {"", *map("=".join, STARTED.items())},
        "words": (about / "cmdline").read_text().rstrip("\0"),
        "folder": (about / "cwd").readlink().parent,
        "program": (about / "exe").readlink(),
        "session": os.getpgid(pid) == os.getsid(pid) == pid,
        "limits": (about / "limits").read_text(),
        "files": sorted(_kind(each) for each in (about / "fd").iterdir()),
    }


def _children(pid: int) -> list[int]:
    tasks = (Path("/proc") / str(pid) / "task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def _stack(pid: int) -> bytes:
    """Return where the system has put things for a process: it differs for each that was not forked."""
    return (Path("/proc") / str(pid) / "auxv").read_bytes()


def _kind(file: Path) -> str:
    return (
        file.name
        if int(file.name) < 3 and "pipe" not in str(file.readlink())
        else re.sub(r"\d+|.*(?=/)", "", str(file.readlink()))
    )


def test_a_command_reads_and_writes_the_streams_of_its_call(
    environment: dict[str, str], barnabas_broker: BarnabasBroker, barnabas_topic: str
) -> None:
    servers = {"BARNABAS_BOOTSTRAP_SERVER": barnabas_broker.bootstrap_servers}
    send, read = [*COMMAND, "produce", barnabas_topic], [*COMMAND, "consume", barnabas_topic, "-e"]
    options: dict[str, Any] = {"env": environment | servers, "capture_output": True, "encoding": "utf-8"}
    sent = subprocess.run(send, input="Äpfel\nBirnen\n", timeout=60, **options)
    assert sent.returncode == 0, sent.stderr
    received = subprocess.run(read, timeout=60, **options)
    assert (received.returncode, received.stdout) == (0, "Äpfel\nBirnen\n"), received.stderr


def test_a_command_that_fails_has_its_exit_code_and_says_why(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    command = [*COMMAND, "log", "check", "nowhere"]
    output = tmp_path / "output"
    with output.open("w") as both:
        code = subprocess.call(command, cwd=tmp_path, env=environment, stdout=both, stderr=both, timeout=60)
    assert code == 2
    assert "nowhere" in output.read_text()


def test_a_command_has_the_variables_of_its_call(tmp_path: Path, environment: dict[str, str]) -> None:
    command = [*COMMAND, "topics", "list"]
    there = environment | {"BARNABAS_BOOTSTRAP_SERVER": "127.0.0.1:1"}
    done = subprocess.run(command, env=there, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr


def test_each_forked_process_draws_its_own_random_numbers(tmp_path: Path, forked: list[int]) -> None:
    clusters = set()
    for name in ("a", "b"):
        with serving(tmp_path / name, dict(os.environ)) as broker:
            broker.terminate()
        clusters.add((tmp_path / name / "here" / "meta.properties").read_text())
    assert len(forked) == len(clusters) == 2


def test_threads_start_processes_at_the_same_time(tmp_path: Path, forked: list[int]) -> None:
    codes: list[int] = []

    def run() -> None:
        codes.append(subprocess.call([*COMMAND, "--version"], stdout=subprocess.DEVNULL, timeout=60))

    threads = [threading.Thread(target=run) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [0] * 5
    assert len(set(forked)) == 5


@pytest.mark.parametrize(
    "call",
    [
        {"preexec_fn": os.getpid},
        {"umask": 0o22},
        {"pass_fds": [0]},
        {"close_fds": False},
        {"process_group": 0},
        {"executable": sys.executable},
        {"env": {"PYTHONPATH": "elsewhere"}},
        {"args": ["sh", "-c", "exit 0"]},
        {"args": "exit 0", "shell": True},
        {"args": [sys.executable, "-c", ""]},
        {"args": [sys.executable, "-m", "json.tool", "--help"]},
    ],
    ids=lambda call: " ".join(call),
)
def test_popen_starts_what_is_not_to_be_forked(call: dict[str, Any], forked: list[int]) -> None:
    command: dict[str, Any] = {"args": [*COMMAND, "--version"], "stdout": subprocess.DEVNULL, "timeout": 60}
    assert subprocess.call(**command | call) == 0
    assert forked == []


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_brokers_that_a_forked_process_starts_are_forked_and_end_with_it(
    tmp_path: Path, forked: list[int], how: int
) -> None:
    with serving(tmp_path, dict(os.environ), "--brokers", "2") as machine:
        children = _children(machine.pid)
        alike = [pid for pid in children if _stack(pid) == _stack(machine.pid)]
        machine.send_signal(how)
        assert machine.wait(60) == (0 if how == signal.SIGTERM else -how)
    assert len(alike) == 3  # its own server, and the brokers
    assert forked == [machine.pid]
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in children):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_variable_that_python_reads_at_its_start_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, forked: list[int]
) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    assert subprocess.call([*COMMAND, "--version"], stdout=subprocess.DEVNULL, timeout=60) == 0
    assert forked == []


def test_popen_starts_all_once_the_server_has_ended(
    monkeypatch: pytest.MonkeyPatch, forked: list[int]
) -> None:
    server = forked_barnabas.Server(*forked_barnabas._start_server())
    server.end()
    monkeypatch.setattr(forked_barnabas, "server", lambda: server)
    assert subprocess.call([*COMMAND, "--version"], stdout=subprocess.DEVNULL, timeout=60) == 0
    assert forked == []
