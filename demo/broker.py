"""Runs the demo's broker or cluster: the command ``barnabas`` in its own process, as a user would run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from barnabas.base.errors import BarnabasError
from barnabas.base.system.processes import ask_to_stop, stoppable

_STOP_TIMEOUT_S = 120
#: after which a broker that was killed is noticed
SESSION_TIMEOUT_MS = 3000


class BrokerFailedError(BarnabasError):
    """The broker did not start; the text has the path of its log."""


class DemoBroker:
    """One broker, or a cluster of several, while the ``with`` block lasts. Its data
    and log stay afterwards.
    """

    def __init__(self, data: Path, log: Path, brokers: int = 1) -> None:
        self._data = data
        self._log = log
        self._brokers = brokers
        #: host:port, of several by commas, once it is ready
        self.address = ""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "barnabas.cli"]
        if self._brokers == 1:
            command += ["start"]
        else:
            command += ["cluster", "start", "--brokers", str(self._brokers)]
            command += ["--set", f"zookeeper.session.timeout.ms={SESSION_TIMEOUT_MS}"]
        command += ["--data", str(self._data), "--listen", "127.0.0.1:0"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, **stoppable())
        assert self._process.stdout is not None
        # one line with the word ready and the address, or none when it cannot start
        ready = self._process.stdout.readline().decode().split()
        if "ready" not in ready:
            self.stop()
            last_words = self._log.read_text(errors="replace").strip().rpartition("\n")[2]
            raise BrokerFailedError(f"the broker did not start ({last_words}); its log is {self._log}")
        self.address = ready[-1]
        return self

    def kill(self, broker: int) -> None:
        """Kill one broker of the cluster.

        Raises:
            BrokerFailedError: the command failed.
        """
        done = subprocess.run(
            [
                *(sys.executable, "-m", "barnabas.cli", "cluster", "kill", str(broker)),
                *("--data", str(self._data)),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise BrokerFailedError(done.stderr.strip())

    def stop(self) -> None:
        """Stop it (SIGTERM) and wait for its end. Kill it if it does not end in time."""
        ask_to_stop(self._process)
        try:
            self._process.communicate(timeout=_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
