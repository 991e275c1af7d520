"""Runs commands as processes with given standard streams.

One process imports all commands, with what they import when they run, and forks for each call. So a call
takes a few milliseconds instead of a whole start.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

_SERVER = """
import io, json, os, signal, sys
import click
import barnabas.client.admin, barnabas.client.consumer, barnabas.client.producer
import barnabas.client.transactions
import barnabas.pipelines.reset, barnabas.pipelines.status_topic, barnabas.pipelines.validate
from barnabas.cli import main
from barnabas.cli.app import app

def import_all(group):
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if isinstance(command, click.Group):
            import_all(command)

import_all(app)

def become(call):
    signal.alarm(60)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if call["stdout"] == "gone":
        read, write = os.pipe()
        os.close(read)
        os.dup2(write, 1)
    else:
        name = "/dev/full" if call["stdout"] == "full" else call["out"]
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    os.dup2(os.open(call["err"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    sys.stdin, sys.stdout, sys.stderr = (open(n, m, closefd=False) for n, m in ((0, "r"), (1, "w"), (2, "w")))
    os.closerange(3, 100)
    for number in call["closed"]:
        os.close(number)
        setattr(sys, ("stdin", "stdout", "stderr")[number], None)
    os.chdir(call["folder"])
    os.environ.update(call["environment"])
    sys.argv = ["barnabas", *call["arguments"]]
    try:
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        import traceback
        traceback.print_exc()
        code = 99
    for stream in (sys.stdout, sys.stderr):  # as Python does at its end
        try:
            stream.flush()
        except OSError:
            code = 120
    os._exit(code)

for line in sys.stdin:
    call = json.loads(line)
    child = os.fork()
    if not child:
        become(call)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Ended(NamedTuple):
    """The outcome of a command. An exit code below 0 is a signal."""

    code: int
    out: str
    err: str


class Forking:
    """The process that forks. The commands run in `folder`."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, *arguments: str, stdout: str = "file", closed: tuple[int, ...] = ()) -> Ended:
        """Run a command.

        Args:
            stdout: "file", "full" (a disk without space), or "gone" (a pipe without a reader).
            closed: the descriptors to close before.
        """
        out, err = self._folder / "stdout", self._folder / "stderr"
        for path in (out, err):
            path.write_text("")
        call: dict[str, Any] = {
            "arguments": arguments,
            "stdout": stdout,
            "closed": closed,
            "out": str(out),
            "err": str(err),
            "folder": str(self._folder),
            "environment": self._environment,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(call) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        return Ended(code, out.read_text(errors="replace"), err.read_text(errors="replace"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.communicate()
