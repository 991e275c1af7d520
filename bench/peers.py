"""Starts each broker, waits until it serves, measures its memory and CPU time, and stops it.

Each broker runs with its own defaults as one process on 127.0.0.1, with its own data directory. It
acknowledges records from the page cache. Tansu acknowledges from memory: it stores nothing on disk here.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from compileall import compile_dir
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import barnabas
from bench.artifacts import kafka_classpath, tansu_binary

#: three times what Apache Kafka needs at a load of 20 on two cores
START_SECONDS = 180.0
#: one group of as many members as either broker allows; the default is 200
SHARE_GROUP = ("group.share.max.size=1000",)
STOP_SECONDS = 60.0
# ApiVersions (key 18) version 0, correlation id 1, no client id: the first thing any client asks.
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """The resources that a broker has used: CPU seconds of its process tree, and its memory now and at most,
    in bytes.
    """

    cpu_seconds: float
    rss: int
    peak_rss: int


class Peer(ABC):
    """One broker process. `start` sets `startup_seconds`, the time until the broker answers."""

    name: str
    #: beside its defaults, as ``name=value`` (Tansu has none)
    settings: tuple[str, ...] = ()

    def __init__(self, directory: Path) -> None:
        """Create a stopped broker.

        Args:
            directory: the folder for the broker's data, configuration and output. It is created if missing.
        """
        self.directory = directory
        self.port = 0
        self.startup_seconds = 0.0
        self._started = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command that runs the broker in the foreground on `self.port`."""

    def prepare(self) -> None:  # noqa: B027 - most brokers need nothing
        """Prepare the first start of the broker. The time of this does not count as start-up time."""

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Return whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def output(self) -> Path:
        return self.directory / "output.log"

    def start(self) -> None:
        """Start the broker and wait until it answers. It uses the same port as before.

        Raises:
            RuntimeError: it does not answer in time; the text has the end of its output.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port = self.port or free_port()
        self.prepare()
        with self.output.open("ab") as output:
            started = self._started = time.monotonic()
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        while not self.answers():
            elapsed = time.monotonic() - started
            if self._process.poll() is not None or elapsed > START_SECONDS:
                last_words = self.output.read_text(errors="replace").splitlines()[-5:]
                self.stop()
                raise RuntimeError(f"{self.name} did not start:\n" + "\n".join(last_words))
            time.sleep(0.005)
        self.startup_seconds = time.monotonic() - started

    def answers(self) -> bool:
        """Whether it serves clients."""
        return _answers(self.port)

    def stop(self) -> None:
        """Stop the process with SIGTERM, and with SIGKILL if it does not end in time."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process, as a crash would."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def usage(self) -> Usage:
        """Return the resources used, from /proc (Linux only)."""
        return usage_of(self.pid)


class Barnabas(Peer):
    """Barnabas, as installed for the Python that runs the benchmark."""

    name = "barnabas"
    settings: tuple[str, ...] = SHARE_GROUP
    #: where a counter of the event loop's long turns reports (`bench.stalls`); None runs without it
    stall_report: Path | None = None

    @property
    def listener(self) -> list[str]:
        """Return the command-line options with the address to listen on."""
        return ["--listen", self.bootstrap]

    def prepare(self) -> None:
        # As pip does when it installs a package; a checkout may have changed since it last ran, and may
        # run where Python is told to keep no bytecode.
        compile_dir(Path(barnabas.__path__[0]), quiet=1)

    def command(self) -> list[str]:
        settings = [word for setting in self.settings for word in ("--set", setting)]
        if self.stall_report is None:
            program = [str(Path(sys.executable).with_name("barnabas"))]
        else:
            program = [sys.executable, "-m", "bench.stalls", str(self.stall_report)]
        return [
            *program,
            "start",
            "--data",
            str(self.directory / "data"),
            *self.listener,
            *settings,
        ]

    @contextmanager
    def counted_stalls(self) -> Iterator[None]:
        """Count the long turns of the event loop while the context lasts. `stall_report` then has them."""
        assert self.stall_report is not None
        os.kill(self.pid, signal.SIGUSR1)
        yield
        os.kill(self.pid, signal.SIGUSR1)
        deadline = time.monotonic() + STOP_SECONDS
        while not self.stall_report.exists():
            if time.monotonic() > deadline:
                raise RuntimeError("no report of the event loop's long turns")
            time.sleep(0.05)


class BarnabasMachine(Barnabas):
    """Several brokers of Barnabas as one cluster, run by `barnabas start --brokers`."""

    brokers: int

    def command(self) -> list[str]:
        return [*super().command(), "--brokers", str(self.brokers)]

    def start(self) -> None:
        """Start the brokers and wait until all of them answer.

        Raises:
            RuntimeError: they do not answer in time.
        """
        self.port = self.port or free_port(self.brokers)
        said = self.output.stat().st_size if self.output.exists() else 0
        super().start()
        while b"ready " not in self.output.read_bytes()[said:]:
            if time.monotonic() > self._started + START_SECONDS or not self.is_running:
                self.stop()
                raise RuntimeError(f"{self.name} did not start: see {self.output}")
            time.sleep(0.005)
        self.startup_seconds = time.monotonic() - self._started


class Barnabas2(BarnabasMachine):
    name = "barnabas-2"
    brokers = 2


class Barnabas4(BarnabasMachine):
    name = "barnabas-4"
    brokers = 4


class Barnabas8(BarnabasMachine):
    name = "barnabas-8"
    brokers = 8


class Kafka(Peer):
    """Apache Kafka as one KRaft node, with the heap size and garbage collector of its own start script."""

    name = "kafka"
    settings: tuple[str, ...] = SHARE_GROUP
    node_id = 1
    #: the ports of the controllers, by node; each node is one of them
    controllers: Mapping[int, int] = MappingProxyType({})

    def prepare(self) -> None:
        self.classpath = kafka_classpath()
        controllers = self.controllers or {self.node_id: free_port()}
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in controllers.items())
        controller = controllers[self.node_id]
        (self.directory / "server.properties").write_text(
            "\n".join(
                [
                    "process.roles=broker,controller",
                    f"node.id={self.node_id}",
                    f"controller.quorum.voters={voters}",
                    f"listeners=PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller}",
                    f"advertised.listeners=PLAINTEXT://{self.bootstrap}",
                    "controller.listener.names=CONTROLLER",
                    "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                    f"log.dirs={self.directory}/data",
                    "offsets.topic.replication.factor=1",
                    "transaction.state.log.replication.factor=1",
                    "transaction.state.log.min.isr=1",
                    "share.coordinator.state.topic.replication.factor=1",
                    "share.coordinator.state.topic.min.isr=1",
                    "group.initial.rebalance.delay.ms=0",
                    *self.settings,
                ]
            )
        )
        (self.directory / "log4j2.xml").write_text(
            '<Configuration><Appenders><Console name="c"/></Appenders>'
            '<Loggers><Root level="warn"><AppenderRef ref="c"/></Root></Loggers></Configuration>'
        )
        if not (self.directory / "data").exists():
            subprocess.run(
                [
                    *self._java("kafka.tools.StorageTool"),
                    "format",
                    "--cluster-id",
                    "4L6g3nShT-eMCtK--X86sw",
                    "--config",
                    str(self.directory / "server.properties"),
                ],
                check=True,
                capture_output=True,
            )

    def _java(self, main: str) -> list[str]:
        return [
            "java",
            "-server",
            "-Xms1g",
            "-Xmx1g",
            "-XX:+UseG1GC",
            "-XX:MaxGCPauseMillis=20",
            "-XX:InitiatingHeapOccupancyPercent=35",
            "-XX:+ExplicitGCInvokesConcurrent",
            f"-Dlog4j2.configurationFile={self.directory}/log4j2.xml",
            "-cp",
            self.classpath,
            main,
        ]

    def command(self) -> list[str]:
        return [*self._java("kafka.Kafka"), str(self.directory / "server.properties")]


class Tansu(Peer):
    """Tansu, a broker in Rust, which keeps its records in memory."""

    name = "tansu"

    def prepare(self) -> None:
        self.binary = tansu_binary()

    def command(self) -> list[str]:
        return [
            str(self.binary),
            "broker",
            "--silent",
            "--storage-engine",
            "memory://tansu/",
            "--listener-url",
            f"tcp://{self.bootstrap}",
            "--advertised-listener-url",
            f"tcp://{self.bootstrap}",
        ]


#: those that a benchmark compares by default
USUAL_PEERS = ("barnabas", "kafka", "tansu")
PEERS: dict[str, type[Peer]] = {
    peer.name: peer for peer in (Barnabas, Kafka, Tansu, Barnabas2, Barnabas4, Barnabas8)
}


def free_port(count: int = 1) -> int:
    """Return the first of `count` successive TCP ports of 127.0.0.1 that are all free now."""
    while True:
        with ExitStack() as exits, suppress(OSError, OverflowError):
            port = 0
            for number in range(count):
                probe = exits.enter_context(socket.socket())
                probe.bind(("127.0.0.1", port + number if port else 0))
                port = port or probe.getsockname()[1]
            return port


def usage_of(pid: int) -> Usage:
    """Return the CPU time of a process and all processes below it, and the memory of the process alone."""
    lines = (Path("/proc") / str(pid) / "status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines if ":" in line)
    return Usage(
        cpu_seconds=tree_cpu_seconds(pid),
        rss=int(status["VmRSS"].split()[0]) * 1024,
        peak_rss=int(status["VmHWM"].split()[0]) * 1024,
    )


def cpu_nanoseconds(pid: int) -> int:
    """Return the CPU time of the process's running threads in nanoseconds. It is more exact than
    `tree_cpu_seconds`.
    """
    used = 0
    for task in (Path("/proc") / str(pid) / "task").iterdir():
        with suppress(OSError):  # it has ended
            used += int((task / "schedstat").read_text().split()[0])
    return used


def tree_of(root: int) -> set[int]:
    """Return the process ids of a process and of all below it."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # it has ended
                parents[int(folder.name)] = int(_stat(int(folder.name))[1])
    tree = {root}
    while below := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= below
    return tree


def tree_memory(root: int) -> int:
    """Return the bytes of memory of a process and of all below it; of a page that n share, each has 1/n."""
    total = 0
    for pid in tree_of(root):
        with suppress(OSError):  # it has ended
            rollup = (Path("/proc") / str(pid) / "smaps_rollup").read_text()
            total += sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return 1024 * total


def tree_cpu_seconds(root: int) -> float:
    """Return the CPU seconds of this process and of all processes below it, including
    those that have ended.
    """
    total = 0.0
    for pid in tree_of(root):
        with suppress(OSError):
            # its own, and that of the children that it has waited for
            total += sum(map(int, _stat(pid)[11:15])) / _TICKS
    return total


def _stat(pid: int) -> list[str]:
    # The command's name, in brackets, may hold spaces: the fields are those behind it.
    return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()


def _answers(port: int) -> bool:
    """Return whether a broker on this port answers ApiVersions."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
            connection.sendall(_API_VERSIONS)
            return len(connection.recv(4)) == 4
    except OSError:
        return False
