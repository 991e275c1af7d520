"""What this process uses of the machine."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import NamedTuple

from barnabas.system import limits


class ProcessUse(NamedTuple):
    """What a process has used; None where the system does not tell."""

    #: processor time of all threads, in seconds
    cpu_seconds: float
    #: bytes in memory, and of address space
    resident: int
    virtual: int | None = None
    #: files and connections that are open, and that may be
    open_files: int | None = None
    most_files: int | None = None
    #: when it began, in seconds since the epoch
    started: float | None = None
    #: bytes that disks have read and written for it
    read_bytes: int | None = None
    written_bytes: int | None = None


def process_use() -> ProcessUse:
    """What this process uses now. It lists the open files, which takes a millisecond for a thousand."""
    use = ProcessUse(time.process_time(), limits.memory_held(), most_files=limits.open_files())
    with contextlib.suppress(OSError, ValueError, IndexError):
        virtual = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * limits.PAGE_SIZE
        open_files = sum(1 for _ in Path("/proc/self/fd").iterdir()) - 1
        use = use._replace(virtual=virtual, open_files=open_files, started=_started())
        io = dict(line.split(": ") for line in Path("/proc/self/io").read_text("ascii").splitlines())
        use = use._replace(read_bytes=int(io["read_bytes"]), written_bytes=int(io["write_bytes"]))
    return use


def _started() -> float:
    """When the process began: so many ticks after the machine has."""
    ticks = int(Path("/proc/self/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19])
    booted = next(
        int(line.split()[1])
        for line in Path("/proc/stat").read_text("ascii").splitlines()
        if line.startswith("btime ")
    )
    return booted + ticks / limits.CLOCK_TICKS
