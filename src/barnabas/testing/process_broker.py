"""A broker of a test's cluster in its own process: ``python -m barnabas.testing.process_broker``.

The process reads from stdin: its settings as one line of JSON, then one command on each line (`_Inside`). It
writes the line ``done`` to stdout when it serves, and ``done`` or an error for each command.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # what is imported stays: to collect among it takes a sixth of the time

import json
import logging
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from kazoo.client import KazooClient

from barnabas.base.environment.blocking import Threads
from barnabas.base.environment.environment import Environment
from barnabas.base.environment.randomness import system_random
from barnabas.base.errors import BarnabasError
from barnabas.base.system import event_loop
from barnabas.base.system.orphans import environment_that_ends
from barnabas.base.system.processes import ask_to_stop, own_group
from barnabas.base.system.signals import stop_this_process
from barnabas.broker.config import BrokerConfig
from barnabas.broker.metadata.zookeeper.address import parse_address
from barnabas.broker.metadata.zookeeper.connection import Sockets, kazoo_hosts
from barnabas.broker.metadata.zookeeper.store import ZooKeeperStore
from barnabas.broker.server.broker import Broker
from barnabas.broker.server.run import serve
from barnabas.testing.faults import AdjustableClock, FillableDisk, RoutedNetwork
from barnabas.testing.runners import BrokerDied
from barnabas.testing.running_broker import BrokerSettings

_DONE = "done"
_EXPIRE, _FILL, _FREE, _SET_CLOCK = "expire", "fill", "free", "set clock "
_START_TIMEOUT = _STOP_TIMEOUT = 60.0
_ANSWER_TIMEOUT = 60.0


class ProcessBroker:
    """A broker in its own process, which logs to a file beside its data.

    Args:
        settings: settings of the broker.
        launcher: words before the broker's command line, such as ``("ip", "netns", "exec", "a")`` to run it
            in another network namespace; by default none.
    """

    def __init__(self, settings: BrokerSettings, launcher: Sequence[str] = ()) -> None:
        self._settings = settings
        self._launcher = launcher
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        data = Path(settings.settings["log.dirs"])
        self._log = data.with_name(data.name + ".log")
        self._process: subprocess.Popen[str]

    def begin(self) -> Self:
        """Start the broker. `wait_ready` waits until it serves."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._launcher, sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment_that_ends(),
                **own_group(),  # Ctrl-C ends the test run, which stops the broker itself
            )
        threading.Thread(target=self._read, daemon=True).start()
        self._say(json.dumps([dict(self._settings.settings), list(self._settings.routes.items())]))
        return self

    def wait_ready(self) -> None:
        """Wait until the broker serves. Raises BrokerDied if it does not start."""
        try:
            self._hear("start", _START_TIMEOUT)
        except BaseException:
            self.kill()
            raise

    def is_ready(self) -> bool:
        """Whether the broker has reported that it serves.

        After True, do not call this or `wait_ready` again: the report comes only once.

        Raises:
            BrokerDied: the broker does not start.
        """
        if self._lines.empty():
            return False
        self._hear("start", 0)
        return True

    def ask_to_stop(self) -> None:
        """Begin a clean stop; `stop` waits for its end."""
        ask_to_stop(self._process)

    def stop(self) -> None:
        self.ask_to_stop()
        try:
            code = self._process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerDied(
                f"broker {self._settings.broker_id} did not stop within {_STOP_TIMEOUT:g} s: {self._said()}"
            ) from None
        self._close()
        if code != 0:
            raise BrokerDied(f"broker {self._settings.broker_id} ended with exit code {code}: {self._said()}")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._close()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    @property
    def last_words(self) -> str:
        """Return the last 2,000 characters of the broker's log."""
        return self._said()

    def expire_session(self) -> None:
        self._ask(_EXPIRE)

    def fill_disk(self, is_full: bool) -> None:
        self._ask(_FILL if is_full else _FREE)

    def set_clock(self, ahead_ms: int) -> None:
        """Set the broker's wall clock `ahead_ms` ahead of the machine's clock; behind it if negative."""
        self._ask(f"{_SET_CLOCK}{ahead_ms}")

    def _ask(self, word: str) -> None:
        self._say(word)
        self._hear(word, 2 * _ANSWER_TIMEOUT)

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise BrokerDied(f"broker {self._settings.broker_id} has ended: {self._said()}") from None

    def _hear(self, word: str, timeout: float) -> None:
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            line = f"it did not answer within {timeout:g} s"
        if line != _DONE:
            raise BrokerDied(f"broker {self._settings.broker_id} could not {word}: {line or self._said()}")

    def _read(self) -> None:
        """Read the broker's output. Runs in a thread: some systems cannot wait for a pipe with a timeout."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put("")
        self._process.stdout.close()

    def _said(self) -> str:
        return self._log.read_text(errors="replace").strip()[-2000:]

    def _close(self) -> None:
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # a command that the process did not live to read
                self._process.stdin.close()


# -- inside the process


def main() -> None:
    """Run the broker that stdin describes, until SIGTERM or the end of stdin."""
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings, routes = json.loads(sys.stdin.readline())
    try:
        _Inside(BrokerConfig.from_text(settings), dict(routes)).run()
    except BarnabasError as error:
        sys.exit(str(error))
    gc.freeze()  # at its end, Python would look for garbage among all objects


class _Inside:
    """Runs the broker in this process, and executes the commands from stdin."""

    def __init__(self, config: BrokerConfig, routes: Mapping[int, int]) -> None:
        self._config = config
        self._clock = AdjustableClock()
        self._disk = FillableDisk()
        self._network = RoutedNetwork(routes)
        self._store: ZooKeeperStore

    def run(self) -> None:
        environment = Environment(
            clock=self._clock,
            filesystem=self._disk,
            blocking=Threads(),
            network=self._network,
            random=system_random(),
            open_store=self._open_store,
        )
        event_loop.run(serve(self._config, self._on_ready, environment=environment))

    async def _open_store(self) -> ZooKeeperStore:
        self._store = await ZooKeeperStore.open(
            parse_address(self._config.zookeeper_connect or ""),
            session_timeout=self._config.zookeeper_session_timeout_ms / 1000,
        )
        return self._store

    def _on_ready(self, _: Broker) -> None:
        threading.Thread(target=self._obey, daemon=True).start()
        print(_DONE, flush=True)

    def _obey(self) -> None:
        for line in sys.stdin:
            try:
                self._do(line.strip())
            except Exception as error:
                print(f"{type(error).__name__}: {error}", flush=True)
            else:
                print(_DONE, flush=True)
        stop_this_process()  # whoever started it is gone

    def _do(self, word: str) -> None:
        if word == _EXPIRE:
            self._expire()
        elif word.startswith(_SET_CLOCK):
            self._clock.ahead_ms = int(word.removeprefix(_SET_CLOCK))
        else:
            self._disk.is_full = word == _FILL

    def _expire(self) -> None:
        """Expire the broker's session: a second client opens it by its id and password, and closes it."""
        address = parse_address(self._config.zookeeper_connect or "")
        thief = KazooClient(
            kazoo_hosts(address),
            handler=Sockets(socket_path=address.socket_path),
            client_id=self._store._connection._client.client_id,
        )
        thief.start(_ANSWER_TIMEOUT)  # a busy machine takes longer than kazoo's 15 s
        thief.stop()
        thief.close()


if __name__ == "__main__":
    main()
