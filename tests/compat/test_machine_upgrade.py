"""`barnabas start --brokers` and an upgrade: of all processes, or below a supervisor that goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.compat.versions import ROOT, checkout, last_release

from barnabas.client import Admin, Consumer, Producer

#: what counts as the last release while there is no tag: the commit of 0.2.0
_RELEASE = "34270eeb"
#: a commit with `start --brokers` that has share.version up to level 1; a new cluster has level 2
_LOWER_LEVEL = "8a400ff6"
NOW = ROOT / "src"
BARNABAS = [sys.executable, "-m", "barnabas.cli"]
PATIENCE = 120


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the sources of the last release. Their brokers call themselves version 0.0.1."""
    sources = checkout(last_release(_RELEASE), tmp_path_factory.mktemp("earlier"))
    module = sources / "barnabas/__init__.py"
    module.write_text(re.sub(r'__version__ = ".*"', '__version__ = "0.0.1"', module.read_text()))
    return sources


class Installed:
    """A folder from which processes import Barnabas. Another version can replace it below a process."""

    def __init__(self, folder: Path) -> None:
        self._link = folder / "installed"
        self.data = folder / "data"

    def install(self, sources: Path) -> None:
        new = self._link.with_name("new")
        new.symlink_to(sources)
        new.replace(self._link)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self._link)}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*BARNABAS, *words], capture_output=True, text=True, timeout=PATIENCE, env=self.environment
        )


class Machine:
    """A `barnabas start` that has printed its ready line; `servers` is empty if it has ended before."""

    def __init__(self, installed: Installed, *arguments: str) -> None:
        self.installed = installed
        self.err: list[str] = []
        self.process = subprocess.Popen(
            [
                *(*BARNABAS, "start", "--data", str(installed.data), "--listen", "127.0.0.1:0"),
                *("--set", "offsets.topic.num.partitions=4", *arguments),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=installed.environment,
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        assert self.process.stdout is not None
        self.servers = "".join(self.process.stdout.readline().split()[-1:])

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.err.extend(iter(self.process.stderr.readline, ""))

    @property
    def said(self) -> str:
        return "".join(self.err)

    def versions(self) -> dict[str, str]:
        """Return the version of each broker, by its id, at its last start."""
        return {
            broker: version
            for version, broker in re.findall(r"barnabas (\S+) starts as broker (\d)", self.said)
        }

    def cluster(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.installed.run("cluster", *words, "--data", str(self.installed.data))

    def end(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.wait(PATIENCE)
        self._reading.join(PATIENCE)
        assert self.process.stdout is not None and self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    return Installed(tmp_path)


@pytest.fixture
def start(installed: Installed) -> Iterator[Callable[..., Machine]]:
    started: list[Machine] = []

    def run(sources: Path, *arguments: str) -> Machine:
        installed.install(sources)
        started.append(Machine(installed, *arguments))
        return started[-1]

    yield run
    for machine in started:
        machine.end()


def send(servers: str, values: Sequence[str]) -> None:
    with Producer(servers) as producer:
        for number, value in enumerate(values):
            producer.send("orders", value, partition=number % 6)


def texts(servers: str, count: int, group: str | None = None) -> list[str]:
    with Consumer(servers, "orders", group=group) as consumer:
        return sorted(record.text for record in consumer.take(count, PATIENCE))


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_brokers_of_one_machine_keep_all_through_an_upgrade_and_back(
    earlier: Path, start: Callable[..., Machine]
) -> None:
    machine = start(earlier, "--brokers", "3")
    Admin(machine.servers).create_topic("orders", 6)
    sent: list[str] = []
    # The way forward after a kill, back after a clean stop, and forward again with one more broker.
    ways = ((earlier, (), signal.SIGKILL), (NOW, (), signal.SIGTERM), (earlier, (), signal.SIGTERM))
    for number, (_, _, way) in enumerate(ways):
        new = [f"{number}-{each}" for each in range(60)]
        send(machine.servers, new)
        sent += new
        assert texts(machine.servers, 60, "workers") == sorted(new), "the group goes on where it was"
        machine.end(way)
        sources = (NOW, earlier, NOW)[number]
        machine = start(sources, *(("--brokers", "4") if number == 2 else ()))
        assert machine.servers, machine.said
        assert texts(machine.servers, len(sent)) == sorted(sent)
    assert len(machine.servers.split(",")) == 4


@pytest.mark.parametrize("is_back", [False, True], ids=["upgrade", "downgrade"])
def test_brokers_restart_with_another_version_below_their_supervisor(
    earlier: Path, installed: Installed, start: Callable[..., Machine], is_back: bool
) -> None:
    before, after = (NOW, earlier) if is_back else (earlier, NOW)
    machine = start(before, "--brokers", "3")
    first = set(machine.versions().values())
    Admin(machine.servers).create_topic("orders", 6)
    send(machine.servers, [f"a-{each}" for each in range(60)])
    installed.install(after)
    for broker in ("2", "3"):
        done = machine.cluster("restart", broker)
        assert done.returncode == 0, done.stderr
    versions = machine.versions()
    assert {versions["1"]} == first and versions["2"] == versions["3"] != versions["1"]
    send(machine.servers, [f"b-{each}" for each in range(60)])
    Admin(machine.servers).create_topic("more", 3)
    (process,) = re.findall(r" 1 .* running +(\d+)", machine.cluster("status").stdout)
    os.kill(int(process), signal.SIGKILL)
    wait_for(lambda: len(set(machine.versions().values())) == 1)
    send(machine.servers, [f"c-{each}" for each in range(60)])
    assert len(texts(machine.servers, 180)) == 180
    assert machine.cluster("stop").returncode == 0
    assert machine.process.wait(PATIENCE) == 0
    again = start(after)
    assert len(texts(again.servers, 180)) == 180


def test_a_version_without_a_feature_level_is_refused_and_the_supervisor_goes_on(
    installed: Installed, start: Callable[..., Machine], tmp_path_factory: pytest.TempPathFactory
) -> None:
    lower = checkout(_LOWER_LEVEL, tmp_path_factory.mktemp("lower"))
    refusal = "the cluster uses share.version at level 2 (this version has 0 to 1)"
    machine = start(NOW, "--brokers", "2")
    Admin(machine.servers).create_topic("orders", 6)
    send(machine.servers, [f"a-{each}" for each in range(60)])
    installed.install(lower)
    assert machine.cluster("restart", "2").returncode == 1
    assert refusal in machine.said
    installed.install(NOW)
    wait_for(lambda: machine.cluster("status").stdout.count(" running ") == 2)
    assert len(texts(machine.servers, 60)) == 60
    machine.end()
    below = start(lower)
    assert not below.servers
    below.end()
    assert refusal in below.said
    assert len(texts(start(NOW).servers, 60)) == 60
