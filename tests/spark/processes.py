"""Finds the processes of a Spark job from the kernel's data, so that tests can kill them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

#: The daemon of the workers that run tasks, Spark's own or ours; planners and committers have others.
TASKS = "daemon pyspark.worker"
_ANY = "daemon pyspark."


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, task.read_text().split())
    return found


def descendants(pid: int) -> Iterator[int]:
    for child in children(pid):
        yield child
        yield from descendants(child)


def workers_of(pid: int, daemon: str = _ANY) -> list[int]:
    """Return the Python workers of the Spark process `pid`: the children of its daemons, or of this daemon.

    Spark looks for data sources only once. If a test kills the worker for this, the session finds none.
    """
    lines = {each: command_line(each) for each in descendants(pid)}
    daemons = [each for each, line in lines.items() if daemon in line and "lookup_data_sources" not in line]
    return [worker for each in daemons for worker in children(each)]


def executors_of(pid: int) -> list[int]:
    return [each for each in descendants(pid) if "CoarseGrainedExecutorBackend" in command_line(each)]


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
