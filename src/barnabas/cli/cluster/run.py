"""Runs a cluster on this machine: a ZooKeeper and some brokers as processes, until a signal."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Any

import click

from barnabas.base.errors import BarnabasError
from barnabas.base.system.processes import ask_to_stop, own_group
from barnabas.base.text import quoted
from barnabas.broker.metadata.zookeeper.server import ZooKeeperMissingError, ZooKeeperServer
from barnabas.cli.address import Address
from barnabas.cli.cluster.control import Command, ControlServer
from barnabas.cli.cluster.folder import ClusterFolder, ClusterFolderError, Layout
from barnabas.cli.secure import SecuredCluster
from barnabas.cli.streams import report

#: seconds until a broker says it is ready: it may have to recover its logs
_START_PATIENCE = 120.0
#: seconds until a broker has moved its leadership away and closed its logs
_STOP_PATIENCE = 60.0
#: the node of a cluster with --secure in a ZooKeeper of its own
_SECURE_CHROOT = "/barnabas"
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")


class ClusterStartError(BarnabasError):
    """A broker did not start; the text has its last words."""


class State(Enum):
    """The state of a broker's process."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    STOPPED = "stopped"
    KILLED = "killed"
    #: it has ended by itself
    ENDED = "ended"


@dataclass(slots=True)
class Member:
    """One broker of the cluster."""

    id: int
    state: State = State.STOPPED
    process: subprocess.Popen[bytes] | None = None
    #: its state once the process has ended
    ends_as: State = State.ENDED
    #: to be answered when its process has ended, or is ready
    at_end: list[Callable[[], None]] = field(default_factory=list)
    at_ready: list[Command] = field(default_factory=list)


class ClusterRunner:
    """Owns the processes. Threads that wait for them, or receive commands, only put events into a queue.

    Args:
        folder: where all of it goes.
        layout: which brokers there are; their addresses are filled in.
        settings: of every broker, by Kafka's names.
        say: prints one line for the person at the terminal.
        metrics: where broker 1 serves metrics, and the others at the ports that follow; each at a free one
            if the port is 0. None for nowhere.
        secured: what `--secure` has made; None without it.
        console: where the web console listens; None for none.
    """

    def __init__(
        self,
        folder: ClusterFolder,
        layout: Layout,
        settings: Mapping[str, str],
        say: Callable[[str], None],
        metrics: Address | None = None,
        secured: SecuredCluster | None = None,
        console: Address | None = None,
    ) -> None:
        self._metrics = metrics
        self._console = console
        #: the URLs of the brokers' metrics
        self._metrics_urls: dict[int, str] = {}
        self._folder = folder
        self._layout = layout
        self._settings = settings
        self._say = say
        self._secured = secured
        self._members = {broker: Member(broker) for broker in sorted(layout.addresses)}
        #: (event, the member or command that it is about, details); None for a signal
        self._events: queue.SimpleQueue[tuple[str, Any, Any] | None] = queue.SimpleQueue()
        self._signals = 0
        self._serves = False
        self._zookeeper: ZooKeeperServer | None = None

    def run(self) -> None:
        """Start everything, say that it is ready, and serve commands until a signal; then stop everything.

        Raises:
            ClusterFolderError: a cluster runs in the folder.
            ZooKeeperMissingError: there is no Java, or no PySpark.
            ClusterStartError: a broker did not start.
        """
        with self._folder.held():
            self._run()

    def _run(self) -> None:
        control = ControlServer(self._folder, lambda command: self._events.put(("command", command, None)))
        try:
            self._start_zookeeper()
            if self._secured is not None:
                zookeeper = str(self._layout.zookeeper)
                is_new = self._folder.layout() is None
                warning = self._secured.close_zookeeper(
                    zookeeper, is_own=self._layout.is_own_zookeeper, is_new=is_new
                )
                if warning:
                    self._say(f"warning: {warning}")
                self._secured.add_admin(zookeeper)
            for member in self._members.values():
                self._start(member)
            if self._await_all():
                self._folder.store_layout(self._layout)
                control.start()
                self._say(self._summary())
                servers = ",".join(self._layout.addresses[broker] for broker in self._members)
                report(f"ready {servers}")
                with self._beside(servers):
                    self._serve()
        finally:
            control.stop()
            self._stop_all()

    def _beside(self, servers: str) -> AbstractContextManager[None]:
        """Run a service beside the brokers, as long as they serve."""
        if self._console is None:
            return nullcontext()
        from barnabas.cli.start.console import running_console

        login = self._secured.login_options(servers) if self._secured is not None else ()
        metrics = [url for _, url in sorted(self._metrics_urls.items())]
        return running_console(str(self._console), servers, login, metrics=metrics)

    # -- starting

    def _start_zookeeper(self) -> None:
        if not self._layout.is_own_zookeeper:
            return
        known = self._layout.zookeeper
        # In a secured cluster no node of the brokers lies directly below a node that others can change.
        address, slash, path = (known or f":0{_SECURE_CHROOT if self._secured else ''}").partition("/")
        port = int(address.rpartition(":")[2])
        zookeeper = ZooKeeperServer(self._folder.zookeeper, port=port)
        try:
            self._zookeeper = zookeeper.start()
        except ZooKeeperMissingError as error:
            raise ZooKeeperMissingError(f"{error}, or name a ZooKeeper by --zookeeper HOST:PORT") from None
        self._layout.zookeeper = zookeeper.address + slash + path

    def _start(self, member: Member) -> None:
        self._folder.path.mkdir(parents=True, exist_ok=True)
        file = self._folder.store_settings_of(member.id, self._settings_of(member))
        command = [sys.executable, "-m", "barnabas.cli", "start", "--config", str(file)]
        with self._folder.open_log_of(member.id) as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                **own_group(),  # a Ctrl-C is for us: we stop the brokers in order
            )
        member.process, member.state, member.ends_as = process, State.STARTING, State.ENDED
        threading.Thread(target=self._watch, args=[member, process], daemon=True).start()

    def _settings_of(self, member: Member) -> Mapping[str, str]:
        settings = dict(self._settings)
        protocol = "PLAINTEXT"
        if self._secured is not None:
            protocol = "SASL_SSL"
            settings = self._secured.settings_with(settings)
        settings |= {
            "node.id": str(member.id),
            "log.dirs": str(self._folder.data_of(member.id)),
            "listeners": f"{protocol}://{self._layout.addresses[member.id]}",
            "zookeeper.connect": str(self._layout.zookeeper),
        }
        if self._metrics is not None:
            host, port = self._metrics
            settings["barnabas.metrics.listener"] = f"{host}:{port + member.id - 1 if port else 0}"
        if member.id in self._layout.racks:
            settings["broker.rack"] = self._layout.racks[member.id]
        if audit := settings.get("barnabas.audit.file"):
            path = Path(audit)
            settings["barnabas.audit.file"] = str(path.with_name(f"{path.stem}-{member.id}{path.suffix}"))
        return settings

    def _watch(self, member: Member, process: subprocess.Popen[bytes]) -> None:
        """Put a process's output and its end into the queue, in a thread."""
        assert process.stdout is not None
        with process.stdout as said:
            line = said.readline().decode(errors="replace").split()
            if "ready" in line:
                if self._metrics is not None:
                    url = said.readline().decode(errors="replace").split()[-1:]
                    self._events.put(("metrics", member, "".join(url)))
                self._events.put(("ready", member, line[1]))
            said.read()
        self._events.put(("ended", member, process.wait()))

    def _await_all(self) -> bool:
        """Whether all are ready; False when a signal came first."""
        deadline = time.monotonic() + _START_PATIENCE
        while any(member.state is not State.RUNNING for member in self._members.values()):
            try:
                event = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                late = [m.id for m in self._members.values() if m.state is not State.RUNNING]
                raise ClusterStartError(
                    f"broker {late[0]} was not ready within {_START_PATIENCE:g} s: "
                    f"{self._folder.last_words_of(late[0])}"
                ) from None
            if event is None:
                return False
            kind, member, _ = event
            self._handle(event)
            if kind == "ended":
                raise ClusterStartError(
                    f"broker {member.id} did not start: {self._folder.last_words_of(member.id)}"
                )
        return True

    def _summary(self) -> str:
        data = self._folder.path.absolute()
        own = ", a process of this cluster" if self._layout.is_own_zookeeper else ""
        lines = [f"{len(self._members)} brokers form a cluster"]
        for broker, address in sorted(self._layout.addresses.items()):
            rack = self._layout.racks.get(broker)
            where = f"  in rack {rack}" if rack else ""
            metrics = f"  metrics {self._metrics_urls[broker]}" if broker in self._metrics_urls else ""
            lines.append(f"  broker {broker}    {address}{where}{metrics}")
        lines.append(f"  ZooKeeper   {self._layout.zookeeper}{own}")
        lines.append(f"  data, logs  {data}")
        if self._secured is not None:
            lines.append(self._secured.announce(",".join(self._layout.addresses.values())))
        lines.append(f"  look with   barnabas cluster status --data {self._folder.path}")
        return "\n".join((*lines, "  stop with   Ctrl-C"))

    # -- serving

    def _serve(self) -> None:
        self._serves = True
        while (event := self._events.get()) is not None:
            self._handle(event)

    def _handle(self, event: tuple[str, Any, Any]) -> None:
        kind, subject, detail = event
        if kind == "ready":
            self._on_ready(subject, detail)
        elif kind == "metrics":
            self._metrics_urls[subject.id] = detail
        elif kind == "ended":
            self._on_ended(subject, detail)
        else:
            self._obey(subject)

    def _on_ready(self, member: Member, address: str) -> None:
        member.state = State.RUNNING
        self._layout.addresses[member.id] = address
        for command in member.at_ready:
            command.answer(address=address)
        member.at_ready.clear()

    def _on_ended(self, member: Member, code: int) -> None:
        member.state, member.process = member.ends_as, None
        if member.state is State.ENDED:
            words = self._folder.last_words_of(member.id)
            if self._serves:
                self._say(
                    f"broker {member.id} ended with exit code {code}: {words}; start it again with "
                    f"`barnabas cluster restart {member.id} --data {self._folder.path}`"
                )
            for command in member.at_ready:
                command.refuse(f"broker {member.id} did not start: {words}")
            member.at_ready.clear()
        then, member.at_end = member.at_end, []
        for call in then:
            call()

    def _obey(self, command: Command) -> None:
        if command.word == "status":
            command.answer(**self._status())
            return
        if command.word == "stop" and command.broker is None:
            command.answer()
            self._events.put(None)
            return
        member = self._members.get(command.broker or 0)
        if member is None:
            known = ", ".join(map(str, self._members))
            command.refuse(f"there is no broker {command.broker} in this cluster: choose from {known}")
        elif member.state in (State.STARTING, State.STOPPING):
            command.refuse(f"broker {member.id} is {member.state.value}: try again when it has done so")
        else:
            self._change(member, command)

    def _change(self, member: Member, command: Command) -> None:
        process, word = member.process, command.word
        if word == "restart":
            self._restart(member, command)
        elif process is None:
            command.refuse(
                f"broker {member.id} does not run ({member.state.value}): start it with "
                f"`barnabas cluster restart {member.id} --data {self._folder.path}`"
            )
        elif word == "stop":
            member.at_end.append(command.answer)
            self._ask_to_stop(member)
        elif word == "kill":
            member.at_end.append(command.answer)
            member.state, member.ends_as = State.STOPPING, State.KILLED
            process.kill()
        elif not hasattr(signal, "SIGSTOP"):
            command.refuse("this system cannot pause a process")
        else:
            is_pause = word == "pause"
            process.send_signal(signal.SIGSTOP if is_pause else signal.SIGCONT)
            member.state = State.PAUSED if is_pause else State.RUNNING
            command.answer()

    def _restart(self, member: Member, command: Command) -> None:
        member.at_ready.append(command)
        if member.process is None:
            self._start(member)
        else:
            member.at_end.append(lambda: self._start(member))
            self._ask_to_stop(member)

    def _ask_to_stop(self, member: Member) -> None:
        assert member.process is not None
        if member.state is State.PAUSED:
            member.process.send_signal(signal.SIGCONT)
        member.state, member.ends_as = State.STOPPING, State.STOPPED
        ask_to_stop(member.process)

    def _status(self) -> dict[str, Any]:
        return {
            "is_secure": self._secured is not None,
            "zookeeper": self._layout.zookeeper,
            "zookeeper_process": None if self._zookeeper is None else self._zookeeper.pid,
            "brokers": [
                {
                    "id": member.id,
                    "address": self._layout.addresses[member.id],
                    "rack": self._layout.racks.get(member.id),
                    "state": member.state.value,
                    "process": None if member.process is None else member.process.pid,
                    "metrics": self._metrics_urls.get(member.id),
                }
                for member in self._members.values()
            ],
        }

    # -- stopping

    def on_signal(self, number: int, _: FrameType | None) -> None:
        """Stop, as the first event to come; at the second signal at once."""
        self._signals += 1
        if self._signals == 1:
            self._say(f"{signal.Signals(number).name}: stopping; once more kills the brokers")
        self._events.put(None)

    def _stop_all(self) -> None:
        """Brokers one after the other, so that each can move its leadership to those left; ZooKeeper last."""
        for member in list(self._members.values()):
            process = member.process
            if process is None or process.poll() is not None:
                continue
            self._ask_to_stop(member)
            deadline = time.monotonic() + _STOP_PATIENCE
            while process.poll() is None:
                if self._signals > 1 or time.monotonic() > deadline:
                    process.kill()
                try:
                    process.wait(0.05)
                except subprocess.TimeoutExpired:
                    continue
        if self._zookeeper is not None:
            self._zookeeper.stop()


def run(runner: ClusterRunner) -> None:
    """Run a cluster until a signal. Raises as `ClusterRunner.run`."""
    numbers = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
    before = {number: signal.signal(number, runner.on_signal) for number in numbers}
    try:
        runner.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def plan(
    folder: ClusterFolder,
    brokers: int | None,
    host: str,
    first_port: int | None,
    zookeeper: str | None,
    racks: Sequence[str],
) -> Layout:
    """Return the brokers to run: those of the folder's last start, and new ones up to `brokers`.

    Raises:
        ClusterFolderError: the options do not fit the cluster of the folder, or it runs.
    """
    folder.require_free()
    before = folder.layout()
    count = brokers or (len(before.addresses) if before is not None else 3)
    if before is not None and count < len(before.addresses):
        raise ClusterFolderError(
            f"{folder.path} has {len(before.addresses)} brokers: start it with --brokers "
            f"{len(before.addresses)}, or choose another folder by --data"
        )
    if before is not None and zookeeper not in (None, before.zookeeper):
        raise ClusterFolderError(
            f"the cluster in {folder.path} has its metadata in the ZooKeeper at {before.zookeeper}: "
            "remove --zookeeper, or choose another folder by --data"
        )
    if racks and (len(racks) != count or not all(rack.strip() for rack in racks)):
        raise click.UsageError(f"--racks {quoted(','.join(racks))}: name one for each of {count} brokers")
    layout = before or Layout(zookeeper=zookeeper, is_own_zookeeper=zookeeper is None)
    for broker in range(1, count + 1):
        if broker not in layout.addresses or first_port is not None:
            port = 9092 if first_port is None else first_port
            layout.addresses[broker] = f"{host}:{port + broker - 1 if port else 0}"
    if racks:
        layout.racks = dict(zip(range(1, count + 1), racks, strict=True))
    return layout
