"""A program of an example in its own process, which a test kills and restarts as a supervisor would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path


class Program:
    """A command for this Python. Its output goes to `log`."""

    def __init__(self, *command: object, log: Path) -> None:
        self._command = [sys.executable, *map(str, command)]
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def keep_up(self) -> bool:
        """Start the program, or restart it after a failure. Return whether it has ended without an error."""
        if self._process is None or self._process.poll() not in (None, 0):
            self._start(subprocess.DEVNULL)
        return self._process is not None and self._process.poll() == 0

    def serve(self) -> str:
        """Start a server, and return its URL when it serves."""
        process = self._start(subprocess.PIPE)
        assert process.stdout is not None
        with process.stdout:
            return process.stdout.readline().split()[-1]

    def _start(self, stdout: int) -> subprocess.Popen[str]:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=stdout, stderr=log, text=True, start_new_session=True
            )
        return self._process

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        """Send a signal to the process only. A process that has ended ignores it."""
        if self._process is not None:
            self._process.send_signal(number)

    def stop(self) -> int:
        """Stop the program as its user would, and return the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(120)

    def kill(self) -> None:
        """Kill the program and all its child processes."""
        if self._process is not None and self.runs:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
