"""`barnabas pipeline run` in its own process, which a test can monitor, stop and kill."""

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

from tests.effort import THOROUGH
from tests.spark_python import forking_python


class PipelineProcess:
    """Runs a pipeline file repeatedly. Its output goes to a file beside it."""

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
            self._process = subprocess.Popen(
                command,
                stderr=log,
                start_new_session=True,
                # what `make kills` kills has the processes of users
                env=os.environ | ({} if THOROUGH else {"PYSPARK_PYTHON": forking_python()}),
            )

    def wait(self, seconds: float = 200) -> int:
        """Wait for the end, and return the exit code."""
        assert self._process is not None
        return self._process.wait(seconds)

    @property
    def ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def stop(self) -> None:
        """Request a stop after the current batches."""
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process and everything that it has started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()

    def status(self) -> dict[str, Any]:
        """Return the output of `barnabas pipeline status`."""
        command = [*self._command, "status", str(self._file), "--json"]
        status: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        return status

    def await_query(self, **at_least: int) -> dict[str, Any]:
        """Return the first query of the status file when its fields have these values, such as
        ``rows_read=1000``.
        """
        return self.await_queries(1, **at_least)[0]

    def await_queries(self, count: int | None = None, **at_least: int) -> list[dict[str, Any]]:
        """Return the first `count` queries of the status file, or all, when their
        fields have these values.
        """
        while True:
            with contextlib.suppress(FileNotFoundError):
                status = json.loads((self.folder / "status.json").read_text())
                queries: list[dict[str, Any]] = status["queries"][:count]
                reached = all((query[name] or 0) >= n for query in queries for name, n in at_least.items())
                if status["pid"] == self.pid and reached:
                    return queries
            assert not self.ended, self.said
            time.sleep(0.1)
