"""`barnabas pipeline run` in a process of its own, to be watched, stopped and killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


class PipelineProcess:
    """Runs a pipeline file again and again; what it says goes to a file beside it."""

    def __init__(self, file: Path, name: str, servers: str, master: str = "local[1]") -> None:
        self._command = [sys.executable, "-m", "barnabas.cli", "pipeline"]
        self._file = file
        self._choices = ["--bootstrap-server", servers, "--master", master]
        self._log = file.with_suffix(".err")
        self.folder = file.parent / ".barnabas" / name
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def said(self) -> str:
        return self._log.read_text()

    @property
    def spark_log(self) -> str:
        return (self.folder / "spark.log").read_text()

    def start(self, *arguments: str) -> None:
        command = [*self._command, "run", str(self._file), *self._choices, *arguments]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stderr=log, start_new_session=True)

    def wait(self, seconds: float = 200) -> int:
        """Its exit code, when it has ended."""
        assert self._process is not None
        return self._process.wait(seconds)

    @property
    def ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def stop(self) -> None:
        """Ask it to stop when its batches are done."""
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End it and all that it has started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()

    def status(self) -> dict[str, Any]:
        """What `barnabas pipeline status` says."""
        command = [*self._command, "status", str(self._file), "--json"]
        status: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        return status

    def await_query(self, **at_least: int) -> dict[str, Any]:
        """The first query of the status file once it has come so far, such as ``rows_read=1000``."""
        return self.await_queries(1, **at_least)[0]

    def await_queries(self, count: int | None = None, **at_least: int) -> list[dict[str, Any]]:
        """The first `count` queries of the status file, or all, once each of them has come so far."""
        while True:
            with contextlib.suppress(FileNotFoundError):
                status = json.loads((self.folder / "status.json").read_text())
                queries: list[dict[str, Any]] = status["queries"][:count]
                reached = all((query[name] or 0) >= n for query in queries for name, n in at_least.items())
                if status["pid"] == self.pid and reached:
                    return queries
            assert not self.ended, self.said
            time.sleep(0.1)
