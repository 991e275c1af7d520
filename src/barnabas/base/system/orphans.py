"""Ends the child processes of this process when this process ends, even by SIGKILL (Linux only).

A test run that is killed cannot stop its brokers. Each broker is in its own process session, so a signal to
the run's process group does not reach it. Linux's parent-death signal depends on the thread that started a
process. So each child has an environment variable with a mark, which the child's own children inherit. A
helper process, the reaper (`reaper.py`), waits for the end of the run. Then it kills each process that has
the mark.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from functools import cache
from pathlib import Path

from barnabas.base.system.processes import own_group

#: the marks of all processes above, the outermost first
MARKS = "BARNABAS_ENDS_WITH"


def environment_that_ends() -> dict[str, str]:
    """Return this process's environment, with a mark for child processes that must not outlive this process.

    The first call starts a helper process, the reaper. When this process has ended, the reaper kills all
    processes whose environment has the mark. On a system other than Linux there is no reaper and no mark:
    children outlive this process if it is killed.
    """
    marks = _marks(os.getpid())
    return {**os.environ, **({MARKS: marks} if marks else {})}


@cache
def _marks(pid: int) -> str | None:
    """Start a reaper for this process. Return the value of the variable `MARKS` for its children.

    The value has the marks with which this process itself was started, and then a new mark. Return None on a
    system without the reaper.

    `pid` is the id of this process. A second call with this id starts no second reaper, and returns the first
    result. A forked process gets its own reaper.
    """
    if not hasattr(os, "pidfd_open") or not Path("/proc/self/environ").exists():
        return None
    mark = f"{pid}-{secrets.token_hex(8)}"
    quiet = subprocess.DEVNULL
    # -I and -S: it needs nothing installed, and starts in some ten milliseconds
    command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("reaper.py")), str(pid), mark]
    reaper = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, cwd="/", **own_group())
    reaper.returncode = 0  # not waited for, which Popen would warn of
    return f"{os.environ.get(MARKS, '')} {mark}".strip()
