"""Processes under faults that overlap. A process runs only if no current fault keeps it down or paused.

A fault keeps a process down or pauses it. Two faults can do the same to one process, which then continues
when both have ended. No method waits, because the storm must begin and end other faults at the same time.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from barnabas.broker.metadata.zookeeper.server import ZooKeeperServer
from barnabas.testing.process_broker import ProcessBroker
from barnabas.testing.runners import BrokerDied

Undo = Callable[[], object]
#: seconds that a clean stop may take
_STOP_SECONDS = 120.0


class Victim(ABC):
    """A process, and the number of faults that keep it down or paused."""

    def __init__(self) -> None:
        self._kept_down = 0
        self._pauses = 0

    def kill(self) -> Undo:
        """Kill the process, and keep it down until the returned function is called."""
        self._kept_down += 1
        self._kill()
        return self._let_up

    def pause(self) -> Undo:
        """Pause the process (SIGSTOP) until the returned function is called."""
        self._pauses += 1
        self._signal(go_on=False)
        return self._resume

    @property
    def is_paused(self) -> bool:
        return self._pauses > 0

    def tend(self) -> None:
        """Start the process if it should run and does not."""
        if not self._kept_down and not self.is_running:
            self._start()

    @property
    @abstractmethod
    def is_running(self) -> bool: ...

    @abstractmethod
    def _start(self) -> None: ...

    @abstractmethod
    def _kill(self) -> None: ...

    @abstractmethod
    def _signal(self, *, go_on: bool) -> None: ...

    def _let_up(self) -> None:
        self._kept_down -= 1
        self.tend()

    def _resume(self) -> None:
        self._pauses -= 1
        if not self._pauses:
            self._signal(go_on=True)


class Server(Victim):
    """A ZooKeeper server of the ensemble."""

    def __init__(self, server: ZooKeeperServer) -> None:
        super().__init__()
        self.server = server

    @property
    def is_running(self) -> bool:
        return self.server.pid is not None

    def is_leader(self) -> bool:
        """Return whether the server's status is "leader"."""
        try:
            return "Mode: leader" in self.server.ask("srvr", 0.5)
        except OSError:
            return False

    def _start(self) -> None:
        self.server.begin()

    def _kill(self) -> None:
        self.server.kill()

    def _signal(self, *, go_on: bool) -> None:
        with suppress(RuntimeError):  # another fault keeps it down
            self.server.resume() if go_on else self.server.pause()


class Broker(Victim):
    """A broker of the cluster.

    Args:
        broker_id: its ``node.id``.
        new_node: makes the process of its next start.
    """

    def __init__(self, broker_id: int, new_node: Callable[[], ProcessBroker]) -> None:
        super().__init__()
        self.broker_id = broker_id
        self._new_node = new_node
        self._node: ProcessBroker | None = None
        self.is_ready = False
        self._must_end_by: float | None = None
        #: one at a time, in order: each waits for the broker's answer
        self._commands = ThreadPoolExecutor(1)
        #: why it ended by itself, or did not end when it was to
        self.deaths: list[str] = []
        #: why it did not start; while faults go on, it may
        self.failed_starts: list[str] = []

    @property
    def is_running(self) -> bool:
        return self._node is not None

    def tend(self) -> None:
        self._look()
        super().tend()

    def restart(self) -> None:
        """Begin a clean stop. `tend` starts the broker again."""
        if self._node is not None and self.is_ready and not self.is_paused:
            self._must_end_by = time.monotonic() + _STOP_SECONDS
            self._node.ask_to_stop()

    def command(self, do: Callable[[ProcessBroker], object]) -> None:
        """Queue a command for the current process. The process executes it when it answers."""
        node = self._node
        if node is not None and self.is_ready:
            self._commands.submit(_carry_out, do, node)

    def await_commands(self) -> None:
        """Wait until every command is done."""
        self._commands.submit(list).result()

    def close(self) -> None:
        """Kill the process, and drop the queued commands."""
        self._kill()
        self._commands.shutdown(cancel_futures=True)

    def _look(self) -> None:
        """Update the state: the broker may have become ready, or may have ended."""
        node = self._node
        if node is None:
            return
        try:
            if node.is_alive:
                self.is_ready = self.is_ready or node.is_ready()
                if self._must_end_by is None or time.monotonic() < self._must_end_by or self.is_paused:
                    return
                raise BrokerDied(f"it did not stop within {_STOP_SECONDS:.0f} s: {node.last_words}")
            if self._must_end_by is None:
                raise BrokerDied(f"it ended by itself: {node.last_words}")
            node.stop()  # it has ended: was that a clean stop?
        except BrokerDied as error:
            told = self.deaths if self.is_ready else self.failed_starts
            told.append(f"broker {self.broker_id}: {str(error)[-400:]}")
        self._kill()

    def _start(self) -> None:
        self._node = self._new_node().begin()

    def _kill(self) -> None:
        node, self._node = self._node, None
        self.is_ready, self._must_end_by = False, None
        if node is not None:
            node.kill()

    def _signal(self, *, go_on: bool) -> None:
        if self._node is not None:
            self._node.resume() if go_on else self._node.pause()


def _carry_out(do: Callable[[ProcessBroker], object], node: ProcessBroker) -> None:
    with suppress(BrokerDied, OSError, ValueError):  # it was killed meanwhile
        do(node)
