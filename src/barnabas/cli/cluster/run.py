"""Runs a cluster on this machine: its metadata store, and some brokers as processes, until a signal."""

from __future__ import annotations

import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

from barnabas.base.errors import BarnabasError
from barnabas.base.system.processes import ask_to_stop, own_group
from barnabas.cli.address import Address
from barnabas.cli.cluster.control import Command, ControlServer
from barnabas.cli.cluster.folder import ClusterFolder, ClusterFolderError, Layout
from barnabas.cli.cluster.store import ClusterStore
from barnabas.cli.secure import SecuredCluster
from barnabas.cli.streams import report

#: seconds between two lines about brokers that are not ready yet: they may have to recover their logs
_NOTICE_EVERY = 120.0
#: Longest wait for an event, in seconds. A signal that arrives just before the wait does not end it, and its
#: handler runs after it.
_LONGEST_WAIT = 0.5
#: seconds until a broker has moved its leadership away and closed its logs
_STOP_PATIENCE = 60.0
#: seconds before a broker that has ended starts again: doubled each time, up to the second number
_FIRST_RETRY, _LAST_RETRY = 0.5, 30.0
#: seconds: if a broker has served for longer before it ends, its earlier failures do not count
_STABLE = 60.0
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")


class ClusterStartError(BarnabasError):
    """A broker did not start. The text has the last line of its log."""


class ClusterFailedError(BarnabasError):
    """The metadata store has failed."""


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
    """One broker of the cluster: its process, the state of the process, and when to restart it.

    It also has what to do later: callbacks for the end of its process, and commands of
    `barnabas cluster` to answer when the broker is ready.
    """

    id: int
    state: State = State.STOPPED
    process: subprocess.Popen[bytes] | None = None
    #: the state that it gets when its process ends
    ends_as: State = State.ENDED
    #: called once, when its process has ended
    at_end: list[Callable[[], None]] = field(default_factory=list)
    #: commands to answer when it is ready
    at_ready: list[Command] = field(default_factory=list)
    #: the address that it advertises to clients
    advertised: str = ""
    #: restarts after ends by itself, without a time of `_STABLE` seconds in which it served
    failures: int = 0
    #: when it was ready, by the monotonic clock; infinity if its last start has failed
    ready_at: float = math.inf
    #: when it is to start again, by the monotonic clock
    retry_at: float | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """Options for the processes of the brokers.

    Attributes:
        options: options of `barnabas start` for each broker; used only if `is_supervised`.
        environment: environment variables of the brokers' processes; None to pass on this process's own.
        has_own_log: whether each broker's log is a file in the folder. If false, brokers log to the stderr of
            this process.
        is_supervised: whether a broker that ends by itself starts again. At the end, supervised brokers are
            stopped all at once, others one after the other.
        advertise: the host that all brokers advertise, and the port that broker 1 advertises; the others
            advertise the ports that follow. None means that each broker advertises the address on which it
            listens.
        protocol: security protocol of each broker's listener; with `--secure` it is always SASL_SSL.
    """

    options: Sequence[str] = ()
    environment: Mapping[str, str] | None = None
    has_own_log: bool = True
    is_supervised: bool = False
    advertise: Address | None = None
    protocol: str = "PLAINTEXT"


#: Runs services beside the brokers, from their addresses (``host:port,...``) and the URLs of their metrics.
Beside: TypeAlias = Callable[[str, Sequence[str]], AbstractContextManager[object]]


class ClusterRunner:
    """Starts, watches and stops the processes of a cluster in one thread. Other threads only queue events.

    Args:
        folder: the cluster's folder.
        layout: the brokers. If an address has port 0, the runner replaces it by the broker's real address.
        store: the metadata store that the brokers share.
        settings: settings of every broker, by Kafka's names.
        say: prints one line for the user.
        metrics: the address of broker 1's metrics; the other brokers use the ports that follow. Port 0 gives
            each broker a free port. None for no metrics.
        secured: the certificates and passwords of `--secure`; None without it.
        beside: called when all brokers are ready, with the addresses that they advertise
            (``host:port,...``) and the URLs of their metrics. It returns a context manager, in which services
            run while the brokers serve.
        launch: how the brokers' processes run.
        prepare: called when the store has started, before the brokers start.
    """

    def __init__(
        self,
        folder: ClusterFolder,
        layout: Layout,
        store: ClusterStore,
        settings: Mapping[str, str],
        say: Callable[[str], None],
        metrics: Address | None = None,
        secured: SecuredCluster | None = None,
        beside: Beside = lambda servers, metrics: nullcontext(),
        launch: Launch = Launch(),
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        self._metrics = metrics
        self._beside = beside
        self._launch = launch
        self._prepare = prepare
        self._store = store
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

    def run(self) -> None:
        """Start all processes, report that, and serve commands until a signal; then stop the processes.

        Raises:
            ClusterFolderError: a cluster already runs in the folder.
            ZooKeeperMissingError: there is no Java, or no PySpark.
            StoreUnavailableError: the metadata store cannot be opened.
            ClusterStartError: a broker did not start.
            ClusterFailedError: the metadata store has failed.
        """
        with self._folder.held():
            self._run()

    def _run(self) -> None:
        control = ControlServer(self._folder, lambda command: self._events.put(("command", command, None)))
        try:
            self._store.start()
            if self._secured is not None:
                self._secure(self._secured)
            self._prepare()
            for member in self._members.values():
                self._start(member)
            if self._await_all():
                try:
                    self._folder.store_layout(self._layout)
                    control.start()
                except ClusterFolderError as error:
                    self._say(f"warning: {error}; no `barnabas cluster` command reaches these brokers")
                self._say(self._summary())
                servers = ",".join(member.advertised for member in self._members.values())
                self._report(servers)
                with self._beside(servers, [url for _, url in sorted(self._metrics_urls.items())]):
                    self._serve()
        finally:
            control.stop()
            self._stop_all()

    def _secure(self, secured: SecuredCluster) -> None:
        is_new = self._folder.layout() is None
        warning = secured.protect(self._store.address, is_own=self._layout.is_own_zookeeper, is_new=is_new)
        if warning:
            self._say(f"warning: {warning}")
        secured.add_admin(self._store.address)

    def _report(self, servers: str) -> None:
        """Print on stdout that all brokers serve, and their addresses."""
        bound = ",".join(self._layout.addresses[broker] for broker in self._members)
        with suppress(OSError):  # it has no reader: the brokers serve all the same
            report(f"ready {bound}" if bound == servers else f"ready {bound} advertised {servers}")
            if self._launch.is_supervised:
                for _, url in sorted(self._metrics_urls.items()):
                    report(f"metrics {url}")

    def failed(self, error: BaseException) -> None:
        """Report that the metadata store has failed. May be called from any thread."""
        self._events.put(("failed", error, None))

    # -- starting

    def _start(self, member: Member) -> None:
        self._folder.path.mkdir(parents=True, exist_ok=True)
        file = self._folder.store_settings_of(member.id, self._settings_of(member))
        command = [sys.executable, "-m", "barnabas.cli", "start", "--config", str(file)]
        if self._launch.is_supervised:
            command += ["--member", str(member.id), *self._launch.options]
        with self._folder.open_log_of(member.id) if self._launch.has_own_log else nullcontext() as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # ends when this process does
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._launch.environment,
                **own_group(),  # a Ctrl-C is for us: we stop the brokers in order
            )
        member.retry_at = None
        member.process, member.state, member.ends_as = process, State.STARTING, State.ENDED
        threading.Thread(target=self._watch, args=[member, process], daemon=True).start()

    def _start_again(self, member: Member) -> None:
        """Start a broker that was ready before. If that fails, report it: the other brokers serve on."""
        try:
            self._start(member)
        except (OSError, ClusterFolderError) as error:  # such as a full disk
            member.state = State.ENDED
            self._say(f"broker {member.id} cannot start: {error}; {self._after(member)}")
            for command in member.at_ready:
                command.answer_error(f"broker {member.id} cannot start: {error}")
            member.at_ready.clear()

    def _settings_of(self, member: Member) -> Mapping[str, str]:
        settings = dict(self._settings)
        protocol = self._launch.protocol
        if self._secured is not None:
            protocol = "SASL_SSL"
            settings = self._secured.settings_with(settings)
        settings |= {
            "node.id": str(member.id),
            "log.dirs": ",".join(map(str, self._folder.log_dirs_of(member.id))),
            "listeners": f"{protocol}://{self._layout.addresses[member.id]}",
            "zookeeper.connect": self._store.address,
        }
        position = sorted(self._members).index(member.id)
        if self._launch.advertise is not None:
            host, port = self._launch.advertise
            port += position if port else 0
            settings["advertised.listeners"] = f"{protocol}://{Address(host, port)}"
        if self._metrics is not None:
            host, port = self._metrics
            settings["barnabas.metrics.listener"] = f"{host}:{port + position if port else 0}"
        if member.id in self._layout.racks:
            settings["broker.rack"] = self._layout.racks[member.id]
        if audit := settings.get("barnabas.audit.file"):
            path = Path(audit)
            settings["barnabas.audit.file"] = str(path.with_name(f"{path.stem}-{member.id}{path.suffix}"))
        return settings

    def _watch(self, member: Member, process: subprocess.Popen[bytes]) -> None:
        """Put a process's output and its end into the queue; runs in a thread."""
        assert process.stdout is not None
        with process.stdout as said:
            line = said.readline().decode(errors="replace").split()
            if "ready" in line:
                if self._metrics is not None:
                    url = said.readline().decode(errors="replace").split()[-1:]
                    self._events.put(("metrics", member, "".join(url)))
                self._events.put(("ready", member, (line[1], line[-1])))
            said.read()
        code = process.wait()
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
        self._events.put(("ended", member, code))

    def _await_all(self) -> bool:
        """Wait until all brokers are ready, however long that takes. Return False if a signal arrives first.

        A start that gave up would begin the recovery of the logs again and again.

        Raises:
            ClusterStartError: a broker has ended.
        """
        next_notice = time.monotonic() + _NOTICE_EVERY
        while late := [member.id for member in self._members.values() if member.state is not State.RUNNING]:
            try:
                event = self._events.get(timeout=_LONGEST_WAIT)
            except queue.Empty:
                if time.monotonic() < next_notice:
                    continue
                next_notice = time.monotonic() + _NOTICE_EVERY
                self._say(
                    f"broker {late[0]} is not ready yet, it may still recover its logs: "
                    f"{self._last_words_of(late[0])}"
                )
                continue
            if event is None:
                return False
            kind, member, _ = event
            self._handle(event)
            if kind == "ended":
                raise ClusterStartError(f"broker {member.id} did not start: {self._last_words_of(member.id)}")
        return True

    def _last_words_of(self, broker: int) -> str:
        if self._launch.has_own_log:
            return self._folder.last_words_of(broker)
        return "its lines are above"

    def _summary(self) -> str:
        data = self._folder.path.absolute()
        lines = [f"{len(self._members)} brokers form a cluster"]
        for broker, address in sorted(self._layout.addresses.items()):
            rack = self._layout.racks.get(broker)
            where = f"  in rack {rack}" if rack else ""
            metrics = f"  metrics {self._metrics_urls[broker]}" if broker in self._metrics_urls else ""
            lines.append(f"  broker {broker}    {address}{where}{metrics}")
        lines.append(f"  {self._store.description()}")
        lines.append(f"  data, logs  {data}")
        if self._secured is not None:
            servers = ",".join(member.advertised for member in self._members.values())
            lines.append(self._secured.announce(servers))
        lines.append(f"  look with   barnabas cluster status --data {self._folder.path}")
        return "\n".join((*lines, "  stop with   Ctrl-C"))

    # -- serving

    def _serve(self) -> None:
        self._serves = True
        while True:
            try:
                event = self._events.get(timeout=self._until_retry())
            except queue.Empty:
                self._start_due()
                continue
            if event is None:
                return
            self._handle(event)

    def _until_retry(self) -> float:
        """Return the seconds until the next restart of a broker, at most `_LONGEST_WAIT`."""
        due = [member.retry_at for member in self._members.values() if member.retry_at is not None]
        return max(0.0, min([_LONGEST_WAIT, *(at - time.monotonic() for at in due)]))

    def _start_due(self) -> None:
        for member in self._members.values():
            if member.retry_at is not None and member.retry_at <= time.monotonic():
                self._start_again(member)

    def _handle(self, event: tuple[str, Any, Any]) -> None:
        kind, subject, detail = event
        if kind == "ready":
            self._on_ready(subject, detail)
        elif kind == "metrics":
            self._metrics_urls[subject.id] = detail
        elif kind == "ended":
            self._on_ended(subject, detail)
        elif kind == "failed":
            raise ClusterFailedError(f"the metadata store has failed ({subject}): all brokers stop")
        else:
            self._obey(subject)

    def _on_ready(self, member: Member, addresses: tuple[str, str]) -> None:
        address, member.advertised = addresses
        member.state, member.ready_at = State.RUNNING, time.monotonic()
        self._layout.addresses[member.id] = address
        for command in member.at_ready:
            command.answer(address=address)
        member.at_ready.clear()

    def _on_ended(self, member: Member, code: int) -> None:
        member.state, member.process = member.ends_as, None
        self._store.broker_ended(member.id)
        if member.state is State.ENDED:
            words = self._last_words_of(member.id)
            if self._serves:
                self._say(f"broker {member.id} ended with exit code {code}: {words}; {self._after(member)}")
            if not self._launch.has_own_log:  # the command prints the answer at another terminal
                words = f"the output of process {os.getpid()} has the reason"
            for command in member.at_ready:
                command.answer_error(f"broker {member.id} did not start: {words}")
            member.at_ready.clear()
        then, member.at_end = member.at_end, []
        for call in then:
            call()

    def _after(self, member: Member) -> str:
        """Return the end of a message about a broker that has ended by itself: what happens next.

        If the brokers are supervised, also plan the restart: the text says after how many seconds it happens.
        If not, the text has the command with which the user starts the broker again.
        """
        if not self._launch.is_supervised:
            return f"start it again with `barnabas cluster restart {member.id} --data {self._folder.path}`"
        now = time.monotonic()
        if now - member.ready_at > _STABLE:
            member.failures = 0
        member.ready_at = math.inf
        pause = min(_FIRST_RETRY * 2**member.failures, _LAST_RETRY)
        member.failures += 1
        member.retry_at = now + pause
        return f"it starts again in {pause:g} s"

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
            command.answer_error(f"there is no broker {command.broker} in this cluster: choose from {known}")
        elif member.state in (State.STARTING, State.STOPPING):
            command.answer_error(f"broker {member.id} is {member.state.value}: try again when it has done so")
        else:
            self._change(member, command)

    def _change(self, member: Member, command: Command) -> None:
        process, word = member.process, command.word
        if word == "restart":
            self._restart(member, command)
        elif process is None:
            command.answer_error(
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
            command.answer_error("this system cannot pause a process")
        else:
            is_pause = word == "pause"
            process.send_signal(signal.SIGSTOP if is_pause else signal.SIGCONT)
            member.state = State.PAUSED if is_pause else State.RUNNING
            command.answer()

    def _restart(self, member: Member, command: Command) -> None:
        member.at_ready.append(command)
        if member.process is None:
            self._start_again(member)
        else:
            member.at_end.append(lambda: self._start_again(member))
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
            "zookeeper_process": self._store.process,
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

    @property
    def _max_signals(self) -> int:
        """Return the number of signals after which brokers still stop cleanly. The next signal kills them."""
        return 2 if self._launch.is_supervised else 1

    def on_hangup(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGHUP: stop the cluster, like the other signals.

        If the brokers are supervised and stdin is no terminal, send SIGHUP to them instead: they reload their
        settings.
        """
        if not self._launch.is_supervised or (sys.stdin is not None and sys.stdin.isatty()):
            self.on_signal(number, frame)
            return
        for member in self._members.values():
            if member.process is not None:
                member.process.send_signal(number)

    def on_signal(self, number: int, _: FrameType | None) -> None:
        """Stop the cluster. Kill the brokers after more than `_max_signals` signals."""
        self._signals += 1
        if self._signals == 1:
            more = "once more" if self._max_signals == 1 else "a third signal"
            self._say(f"{signal.Signals(number).name}: stopping; {more} kills the brokers")
        self._events.put(None)

    def _stop_all(self) -> None:
        """Stop the brokers, then the store.

        Supervised brokers (`Launch.is_supervised`) stop at the same time. Others stop one after the other, so
        that each broker can move its leaderships to those that still run. Kill a broker that does not stop in
        time.
        """
        running = [member for member in self._members.values() if member.process is not None]
        if self._launch.is_supervised:
            for member in running:
                self._ask_to_stop(member)
        for member in running:
            process = member.process
            assert process is not None
            if not self._launch.is_supervised and process.poll() is None:
                self._ask_to_stop(member)
            deadline = time.monotonic() + _STOP_PATIENCE
            while process.poll() is None:
                if self._signals > self._max_signals or time.monotonic() > deadline:
                    process.kill()
                try:
                    process.wait(0.05)
                except subprocess.TimeoutExpired:
                    continue
        self._store.stop()


def run(runner: ClusterRunner) -> None:
    """Run a cluster until a signal, with handlers for signals. Raises the errors of `ClusterRunner.run`."""
    numbers = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
    handlers = {getattr(signal, "SIGHUP", None): runner.on_hangup}
    before = {number: signal.signal(number, handlers.get(number, runner.on_signal)) for number in numbers}
    try:
        runner.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
