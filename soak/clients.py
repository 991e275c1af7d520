"""The processes of the clients: the soak starts, monitors, pauses, kills and replaces them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from soak.history import Recorder
from soak.plan import Slot
from soak.roles.common import Task

STOP_SECONDS = 40.0


@dataclass
class Life:
    """One process that runs a role."""

    name: str
    process: subprocess.Popen[bytes]
    output: Path

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    @property
    def last_words(self) -> str:
        said = self.output.read_text(errors="replace").strip().splitlines()
        return said[-1][:160] if said else f"exit code {self.process.returncode}"


class Client:
    """A slot of the plan, and the process that currently fills it."""

    def __init__(self, slot: Slot, directory: Path, recorder: Recorder, java: list[str], **task: Any) -> None:
        self.slot = slot
        self.life: Life | None = None
        #: paused lives whose place another has taken
        self.zombies: list[Life] = []
        #: the last words of lives that ended by themselves
        self.crashes: list[str] = []
        self._directory = directory
        self._recorder = recorder
        self._java = java
        self._task = {**slot.task, **task}
        self._lives = 0

    def start(self) -> None:
        self._lives += 1
        slot = self.slot
        name = f"{slot.name}.{self._lives}"
        history = self._directory / f"{name}.jsonl"
        task = Task(name, slot.role, slot.client, history=str(history), topics=slot.topics, **self._task)
        command = (
            [*self._java, "Transform"] if slot.client == "java" else [sys.executable, "-m", "soak.worker"]
        )
        output = self._directory / f"{name}.output"
        with output.open("wb") as file:
            process = subprocess.Popen(
                [*command, task.text], stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        self.life = Life(name, process, output)

    def tend(self) -> None:
        """Start a new process if the current one has ended by itself. Forget zombies that have ended."""
        if self.life is not None and self.life.process.poll() is not None:
            self.crashes.append(f"{self.slot.name}: {self.life.last_words}")
            self._gone(self.life)
            self.start()
        self.zombies = [zombie for zombie in self.zombies if zombie.process.poll() is None]

    def kill(self) -> None:
        if self.life is not None:
            self.life.process.kill()
            self.life.process.wait()
            self._gone(self.life)
            self.life = None

    def pause(self) -> Life | None:
        if self.life is not None:
            self.life.signal(signal.SIGSTOP)
        return self.life

    def succeed(self) -> None:
        """Start a second process for the slot. The first one, which is paused, becomes a zombie."""
        if self.life is not None:
            self.zombies.append(self.life)
            self._gone(self.life)
            self.start()

    def stop(self) -> None:
        """Ask the process to end, and kill the paused former ones. `wait` waits for the end."""
        for zombie in self.zombies:
            zombie.process.kill()
        if self.life is not None:
            self.life.signal(signal.SIGTERM)

    def wait(self) -> None:
        for zombie in self.zombies:
            zombie.process.wait()
        self.zombies.clear()
        life, self.life = self.life, None
        if life is None:
            return
        try:
            life.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            life.signal(signal.SIGABRT)
            life.process.wait()
            self.crashes.append(f"{life.name}: did not stop in {STOP_SECONDS:.0f} s, see {life.output}")

    def destroy(self) -> None:
        """Kill all processes of this client."""
        for life in [*self.zombies, *([self.life] if self.life else [])]:
            if life.process.poll() is None:
                os.kill(life.process.pid, signal.SIGKILL)
                life.process.wait()

    def _gone(self, life: Life) -> None:
        self._recorder.note("stopped", target=life.name)
