"""Starts processes, asks them to stop, and kills them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_IS_WINDOWS = os.name == "nt"


def stoppable() -> dict[str, Any]:
    """Return arguments for `subprocess.Popen`, so that `ask_to_stop` can stop the process.

    Except on Windows, the process still gets this terminal's Ctrl-C.
    """
    return own_group() if _IS_WINDOWS else {}


def own_group() -> dict[str, Any]:
    """Return arguments for `subprocess.Popen`, so that the process does not get this terminal's Ctrl-C."""
    if _IS_WINDOWS:
        return {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
    return {"start_new_session": True}


def inherits(connection: Connection) -> dict[str, Any]:
    """Return arguments for `subprocess.Popen`, so that the new process inherits `connection`.

    The new process opens it by its number with `inherited`.
    """
    number = connection.fileno()
    if not _IS_WINDOWS:
        return {"pass_fds": [number]}
    system: Any = os
    startup: Any = subprocess
    system.set_handle_inheritable(number, True)
    return {"startupinfo": startup.STARTUPINFO(lpAttributeList={"handle_list": [number]})}


def inherited(number: int) -> Connection:
    """Return the connection that this process inherited from its parent (see `inherits`).

    Args:
        number: `fileno()` of the connection in the parent.
    """
    from multiprocessing import connection

    kinds: Any = connection
    made: Connection = (kinds.PipeConnection if _IS_WINDOWS else kinds.Connection)(number)
    return made


def ask_to_stop(process: subprocess.Popen[Any]) -> None:
    """Ask a process that was started with `own_group` or `stoppable` to stop cleanly."""
    if _IS_WINDOWS:
        process.send_signal(signal.CTRL_BREAK_EVENT)  # type: ignore[attr-defined]
    else:
        process.send_signal(signal.SIGTERM)


def kill_group(process: subprocess.Popen[Any]) -> None:
    """Kill a process that was started with `own_group`, with all its children (on Windows without them)."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if _IS_WINDOWS:
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
