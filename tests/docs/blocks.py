"""The code blocks of a page, and a reader who follows the page with a broker of their own.

A page is followed from top to bottom in one empty folder:

- `sh` blocks run in bash. `barnabas`, `pip`, `make` and `python3` are those of `commands.py`, which ends what
  would run until Ctrl-C and installs nothing.
- `python` blocks run in one interpreter a page, so that a later block may use the names of an earlier one.
  Blocks with a test are collected; pytest runs them at the end of the page.
- A block with `title="NAME"` is the file NAME of the folder.
- `json` must parse. `text` is output or a sketch.

Addresses of this machine are replaced by those that the reader's servers got.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import spark_quick
from tests.docs.pages import place
from tests.ports import held_port, held_row
from tests.spark_python import forking_python

from barnabas.spark.session import FORKED

_FENCE = re.compile(
    r'^(?P<indent> *)```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?(?P<rest>[^\n]*)\n'
    r"(?P<text>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)
_TEST = re.compile(r"^def test_", re.MULTILINE)
_HERE = Path(__file__).parent
_COMMANDS = str(_HERE / "commands.py")
#: what the commands import
_IMPORTED = (
    *(
        f"barnabas.cli.{name}"
        for name in ("app", "start.command", "cluster.commands", "log.commands", "acls")
    ),
    *(f"barnabas.cli.{name}" for name in ("topics", "groups", "produce", "consume", "registry", "brokers")),
    *(f"barnabas.client.{name}" for name in ("admin", "producer", "consumer")),
    "barnabas.broker.server.run",
)

LANGUAGES = {"sh", "python", "sql", "toml", "ini", "json", "yaml", "text"}


@dataclass(frozen=True)
class Block:
    page: str  # its place in the repository
    line: int
    language: str
    title: str | None
    text: str

    @property
    def name(self) -> tuple[str, str]:
        """The name of a block: its page and its first line. It stays the same when
        the page gets more lines.
        """
        return self.page, self.text.partition("\n")[0]


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    blocks = []
    for match in _FENCE.finditer(text):
        assert not match["rest"].strip(), f"{page}: what is {match['rest']!r}?"
        indent = len(match["indent"])
        body = "".join(line[indent:] or "\n" for line in match["text"].splitlines(keepends=True))
        line = text.count("\n", 0, match.start()) + 1
        blocks.append(Block(place(page), line, match["language"], match["title"], body))
    return blocks


class Reader:
    """Runs the blocks of one page. Close it, because it has processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ports = (9092, 8081, 8082, 9093)
        cluster = held_row(3)
        self._held = [cluster[0], *(held_port() for _ in ports[1:]), *cluster[1:]]
        self._addresses = {
            f"127.0.0.1:{port}": f"127.0.0.1:{held.getsockname()[1]}"
            for port, held in zip(ports, self._held, strict=False)
        }
        self._commands = folder / ".commands"
        self._commands.mkdir()
        python = forking_python((_COMMANDS,), _IMPORTED)
        for name in ("barnabas", "pip", "make", "python3", "python"):
            script = self._commands / name
            script.write_text(f'#!/bin/sh\nexec "{python}" "{_COMMANDS}" {name} "$@"\n')
            script.chmod(0o755)
        broker, registry, *_ = self._addresses.values()
        self._environment = {
            **os.environ,
            "PYSPARK_PYTHON": forking_python(),
            "PATH": f"{self._commands}:{os.environ['PATH']}",
            "HOME": str(folder),
            "BARNABAS_BOOTSTRAP_SERVER": broker,
            "DOCS_BROKER": broker,
            "DOCS_REGISTRY": registry,
            "DOCS_STATE": str(self._commands),
            **spark_quick.environment(*(f"-D{name}={value}" for name, value in FORKED.items())),
        }
        self._interpreter: subprocess.Popen[str] | None = None
        self._tests = 0

    def follow(self, block: Block) -> None:
        """Run a block.

        Raises:
            AssertionError: the block failed; the text is its output.
        """
        text = block.text
        for written, actual in self._addresses.items():
            text = text.replace(written, actual)
        if block.title is not None:
            (self.folder / block.title).write_text(text, encoding="utf-8")
        match block.language:
            case "sh":
                self._run(["bash", "-e", "-o", "pipefail", "-c", text], block)
            case "python" if block.title is not None:
                compile(text, block.title, "exec")
            case "python" if _TEST.search(text):
                self._tests += 1
                (self.folder / f"test_block_{self._tests}.py").write_text(text, encoding="utf-8")
            case "python":
                self._interpret(text, block)
            case "toml":
                tomllib.loads(text)
            case "json":
                json.loads(text)

    def finish(self) -> None:
        """Run the tests among the blocks, with the configuration of the page."""
        if self._tests:
            said = self._run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."], None)
            assert f"{self._tests} passed" in said, said

    def start_broker(self) -> None:
        self._run(["barnabas", "start"], None)

    def close(self) -> None:
        """Stop the interpreter and the servers."""
        if self._interpreter is not None:
            with self._interpreter as interpreter:  # closes its stdin, then waits
                interpreter.terminate()
        for pid in self._commands.glob("*.pid"):
            os.kill(int(pid.read_text()), signal.SIGTERM)
        for held in self._held:
            held.close()

    def _run(self, command: list[str], block: Block | None) -> str:
        outcome = subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1700,  # against what hangs, on a busy machine, too
        )
        assert outcome.returncode == 0, f"{_where(block)} exit code {outcome.returncode}\n{outcome.stdout}"
        return outcome.stdout

    def _interpret(self, text: str, block: Block) -> None:
        if self._interpreter is None:
            self._interpreter = subprocess.Popen(
                [sys.executable, "-W", "ignore", str(_HERE / "interpreter.py")],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        assert self._interpreter.stdin is not None
        assert self._interpreter.stdout is not None
        print(json.dumps(text), file=self._interpreter.stdin, flush=True)
        answer = self._interpreter.stdout.readline()
        assert answer, f"{_where(block)} the interpreter ended"
        error: Any = json.loads(answer)
        assert error is None, f"{_where(block)} {error}"


def _where(block: Block | None) -> str:
    return f"{block.page}:{block.line}:" if block else ""
