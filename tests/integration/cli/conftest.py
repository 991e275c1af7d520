"""Runs commands in this process, with the shared broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from barnabas.cli.app import app
from barnabas.testing.cluster import Cluster


class Outcome(NamedTuple):
    """The outcome of a command: its output and its exit code."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


@pytest.fixture
def barnabas(barnabas_broker: Cluster) -> Callable[..., Outcome]:
    """Run a command: `barnabas("topics", "list")`. The test fails if the exit code is not `code`."""

    def run(*arguments: object, stdin: bytes | str | None = None, code: int = 0) -> Outcome:
        result = CliRunner().invoke(
            app,
            [str(argument) for argument in arguments],
            input=stdin,
            env={"BARNABAS_BOOTSTRAP_SERVER": barnabas_broker.bootstrap_servers},
            prog_name="barnabas",
        )
        outcome = Outcome(result.exit_code, result.stdout, result.stderr)
        assert outcome.code == code, f"{outcome}\n{result.exception!r}"
        return outcome

    return run


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Run a command as a process, and kill it at the end of the test."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: object) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "barnabas.cli", *map(str, arguments)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=tmp_path,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        )
        return started[-1]

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
