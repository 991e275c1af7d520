"""Two ways to run a broker for a test: in a thread of this process, or in its own process."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from barnabas.base.errors import BarnabasError
from barnabas.base.system.orphans import environment_that_ends
from barnabas.base.system.processes import ask_to_stop, own_group


class BrokerDied(BarnabasError):
    """The broker's process has ended, or did not start, stop or answer in time.

    The text has its last output.
    """


class Runner(Protocol):
    def start(self, settings: Mapping[str, str]) -> str: ...
    def stop(self) -> None: ...


class ThreadRunner:
    """Runs a broker in a thread of this process."""

    def start(self, settings: Mapping[str, str]) -> str:
        from barnabas.broker.config import BrokerConfig
        from barnabas.broker.server.run import BrokerServer

        self._server = BrokerServer(BrokerConfig.from_text(settings))
        return self._server.start().bootstrap_servers

    def stop(self) -> None:
        self._server.stop()


class ProcessRunner:
    """Runs `barnabas start` in its own process. The output goes to a file beside the broker's data."""

    start_timeout = 60.0
    stop_timeout = 60.0

    def start(self, settings: Mapping[str, str]) -> str:
        data = Path(settings["log.dirs"])
        data.parent.mkdir(parents=True, exist_ok=True)
        self._log = data.with_name(data.name + ".stderr")
        options = [option for name, value in settings.items() for option in ("--set", f"{name}={value}")]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "barnabas.cli", "start", *options],
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment_that_ends(),  # a test run that is killed stops nothing
                **own_group(),  # a Ctrl-C at the test run is not meant for it
            )
        try:
            return self._await_ready()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        ask_to_stop(self._process)
        try:
            code = self._process.wait(self.stop_timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerDied(
                f"the broker did not stop within {self.stop_timeout:g} s: {self._said()}"
            ) from None
        said = self._said()
        self._cleanup()
        if code != 0:
            raise BrokerDied(f"the broker ended with exit code {code}: {said}")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._cleanup()

    def _await_ready(self) -> str:
        """Wait for the line of output that says `ready`; return the broker's address from this line.

        Raises:
            BrokerDied: the process ended, or was not ready within `start_timeout` seconds.
        """
        assert self._process.stdout is not None
        lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        read = self._process.stdout.readline
        # A thread, since not every system can wait for a pipe with a timeout.
        threading.Thread(target=lambda: lines.put(read()), daemon=True).start()
        try:
            line = lines.get(timeout=self.start_timeout)
        except queue.Empty:
            raise BrokerDied(
                f"the broker was not ready within {self.start_timeout:g} s: {self._said()}"
            ) from None
        if not line.endswith(b"\n"):
            raise BrokerDied(f"the broker would not start: {self._said()}")
        return line.decode().split()[-1]

    def _said(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return self._log.read_text(errors="replace").strip()[-2000:]
        return ""

    def _cleanup(self) -> None:
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.unlink(missing_ok=True)


RUNNERS: dict[str, type[ThreadRunner] | type[ProcessRunner]] = {
    "thread": ThreadRunner,
    "process": ProcessRunner,
}
