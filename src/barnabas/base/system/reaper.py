"""The process of `orphans.py`: ``reaper.py PID MARK`` kills processes with MARK once PID has ended."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

#: seconds between two searches: a marked process may have started another one meanwhile
_PAUSE = 0.05
_SEARCHES = 200


def main() -> None:
    """Wait until the process PID has ended. Then kill the processes with MARK until none is left.

    Give up after `_SEARCHES` searches.
    """
    pid, mark = int(sys.argv[1]), sys.argv[2].encode()
    with suppress(ProcessLookupError):  # it has ended already
        select.select([os.pidfd_open(pid)], [], [])
    for _ in range(_SEARCHES):
        if not _kill_marked(mark):
            break
        time.sleep(_PAUSE)


def _kill_marked(mark: bytes) -> bool:
    """Kill each process whose environment has the mark. Return whether there was one."""
    found = False
    for entry in Path("/proc").iterdir():
        # its own has no mark; another user's cannot be read; a zombie's is empty
        with suppress(OSError):
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
                found = True
    return found


if __name__ == "__main__":
    main()
