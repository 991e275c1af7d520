"""Executes the schedule of faults while the clients work, in one thread and in order of time."""

from __future__ import annotations

import os
import sched
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from bench.peers import Peer, tree_of

from soak.clients import Client, Life
from soak.disk import LimitedDisk
from soak.history import Recorder
from soak.nemesis import BROKER, FILL, FILL_AND_KILL, KILL, PAUSE, RESTART, ZOMBIE, Fault, member

TEND_SECONDS = 0.5


class Target(Protocol):
    """The system under test. It executes the faults that do not concern clients."""

    def begin(self, fault: Fault) -> Callable[[], object]:
        """Begin a fault. Return the function that ends it."""

    def tend(self) -> None:
        """Start each process that should run and does not. The storm calls this method regularly."""


class OneBroker:
    """A broker in its own process, and its disk if the soak can fill it."""

    def __init__(self, peer: Peer, recorder: Recorder, disk: LimitedDisk | None = None) -> None:
        self._peer = peer
        self._recorder = recorder
        self._disk = disk

    def begin(self, fault: Fault) -> Callable[[], object]:
        if fault.kind == PAUSE:
            os.kill(self._peer.pid, signal.SIGSTOP)
            return lambda: os.kill(self._peer.pid, signal.SIGCONT)
        if fault.kind in (FILL, FILL_AND_KILL):
            return self._fill(fault)
        if fault.kind == RESTART:
            self._peer.stop()
        else:
            self._peer.kill()
        return self._peer.start

    def tend(self) -> None:
        """Do nothing: a broker that ends by itself stays down, so that the next fault
        fails and reports this.
        """

    def _fill(self, fault: Fault) -> Callable[[], object]:
        disk = self._disk
        assert disk is not None
        disk.fill(fault.left)
        restart = threading.Timer(fault.seconds / 2, self._restart_on_full_disk)
        if fault.kind == FILL_AND_KILL:
            restart.start()

        def free() -> None:
            disk.free()  # first: a broker that starts may wait for just that
            if fault.kind == FILL_AND_KILL:
                restart.join()
            if not self._peer.is_running:
                self._peer.start()

        return free

    def _restart_on_full_disk(self) -> None:
        self._peer.kill()
        try:
            self._peer.start()
        except RuntimeError as error:  # as it may, when it says why
            self._recorder.note(
                "fault", fault="refused to start on a full disk", target=BROKER, said=str(error)
            )


class Machine(OneBroker):
    """Several brokers under one supervisor, which starts each broker that is killed."""

    def begin(self, fault: Fault) -> Callable[[], object]:
        if fault.target == BROKER:
            return super().begin(fault)
        for pid in tree_of(self._peer.pid) if self._peer.is_running else ():
            with suppress(OSError):  # it has ended
                words = (Path("/proc") / str(pid) / "cmdline").read_bytes().decode().split("\0")
                if "--member" in words and member(int(words[words.index("--member") + 1])) == fault.target:
                    os.kill(pid, signal.SIGKILL)
        return list


class Storm:
    """Executes a schedule. It skips a fault on a client that is under another fault."""

    def __init__(self, target: Target, clients: Mapping[str, Client], recorder: Recorder) -> None:
        self._target = target
        self._clients = clients
        self._recorder = recorder
        self._scheduler = sched.scheduler(time.monotonic, time.sleep)
        self._busy: set[str] = set()
        #: how often each kind of fault was carried out: "kill broker", "pause client" ...
        self.counts: dict[str, int] = {}

    def run(self, faults: Sequence[Fault], seconds: float) -> None:
        start = time.monotonic()
        for fault in faults:
            self._scheduler.enterabs(start + fault.at, 1, self._begin, (fault,))
        self._tend(start + seconds)
        self._scheduler.run()

    def _tend(self, until: float) -> None:
        self._target.tend()
        for name, client in self._clients.items():
            if name not in self._busy:
                client.tend()
        if time.monotonic() < until:
            self._later(TEND_SECONDS, lambda: self._tend(until))

    def _begin(self, fault: Fault) -> None:
        if fault.target in self._busy:
            return
        self._busy.add(fault.target)
        self._recorder.note("fault", fault=fault.kind, target=fault.target, seconds=fault.seconds)
        kind = f"{fault.kind} {'client' if fault.target in self._clients else fault.target}"
        self.counts[kind] = self.counts.get(kind, 0) + 1
        undo = self._on_client(fault) if fault.target in self._clients else self._target.begin(fault)

        def over() -> None:
            undo()
            self._busy.discard(fault.target)
            self._recorder.note("fault", fault=f"{fault.kind} is over", target=fault.target)

        self._later(fault.seconds, over)

    def _on_client(self, fault: Fault) -> Callable[[], None]:
        client = self._clients[fault.target]
        if fault.kind == KILL:
            client.kill()
            return client.start
        life = client.pause()
        if fault.kind == ZOMBIE:
            self._later(fault.seconds / 2, client.succeed)
        return lambda: _resume(life)

    def _later(self, seconds: float, action: Callable[[], object]) -> None:
        self._scheduler.enter(seconds, 1, action)


def _resume(life: Life | None) -> None:
    if life is not None and life.process.poll() is None:
        life.signal(signal.SIGCONT)
