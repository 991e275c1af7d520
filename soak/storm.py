"""The storm: the clients at work while faults come and go, in one thread and in the order of their times."""

from __future__ import annotations

import os
import sched
import signal
import time
from collections.abc import Callable, Mapping, Sequence

from bench.peers import Peer

from soak.clients import Client, Life
from soak.disk import LimitedDisk
from soak.history import Recorder
from soak.nemesis import BROKER, FILL, FILL_AND_KILL, KILL, PAUSE, RESTART, ZOMBIE, Fault

TEND_SECONDS = 0.5


class Storm:
    """Carries out a schedule. A fault on a client that is under another is passed over."""

    def __init__(
        self, peer: Peer, clients: Mapping[str, Client], recorder: Recorder, disk: LimitedDisk | None = None
    ) -> None:
        self._peer = peer
        self._disk = disk
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
        kind = f"{fault.kind} {BROKER if fault.target == BROKER else 'client'}"
        self.counts[kind] = self.counts.get(kind, 0) + 1
        undo = self._on_broker(fault) if fault.target == BROKER else self._on_client(fault)

        def over() -> None:
            undo()
            self._busy.discard(fault.target)
            self._recorder.note("fault", fault=f"{fault.kind} is over", target=fault.target)

        self._later(fault.seconds, over)

    def _on_broker(self, fault: Fault) -> Callable[[], None]:
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

    def _fill(self, fault: Fault) -> Callable[[], None]:
        disk = self._disk
        assert disk is not None
        disk.fill(fault.left)
        if fault.kind == FILL_AND_KILL:
            self._later(fault.seconds / 2, self._restart_on_full_disk)

        def free() -> None:
            disk.free()
            if not self._peer.is_running:
                self._peer.start()

        return free

    def _restart_on_full_disk(self) -> None:
        self._peer.kill()
        try:
            self._peer.start()
        except RuntimeError as error:  # as it may, when it says why
            self.counts["refused to start on a full disk"] = (
                self.counts.get("refused to start on a full disk", 0) + 1
            )
            self._recorder.note(
                "fault", fault="refused to start on a full disk", target=BROKER, said=str(error)
            )

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
