"""Shows steps on the terminal: a moving line while a step runs, and a line that stays when it is done."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TaskProgressColumn, TextColumn


@dataclass
class Step:
    """One step. `result` is the text of its last line."""

    progress: Progress
    task: TaskID
    result: str = ""

    def at(self, done: int, total: int) -> None:
        """Show the progress of the step."""
        self.progress.update(self.task, completed=min(done, total), total=total)


@contextmanager
def step(console: Console, title: str) -> Iterator[Step]:
    """Run a step. If the output is a pipe, write only the last line."""
    moving = console.is_terminal
    began = time.monotonic()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=console, transient=True, disable=not moving) as progress:
        running = Step(progress, progress.add_task(title, total=None))
        yield running
    seconds = time.monotonic() - began
    line = f"[green]done[/]  {title:<9} {running.result}  [dim]{seconds:.1f} s[/]"
    console.print(line, highlight=False, soft_wrap=True)
