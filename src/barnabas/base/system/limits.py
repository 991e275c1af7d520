"""Limits of a process: open files, memory, processor time."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

try:
    import resource
except ModuleNotFoundError:  # Windows
    resource = None  # type: ignore[assignment]

#: The limit of Windows' C runtime; sockets do not count.
_WITHOUT_LIMITS = 8192
#: bytes of a page of memory, and ticks of a second in which Linux counts processor time
PAGE_SIZE: int = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
CLOCK_TICKS: int = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100

#: a container's processor quota: microseconds of CPU time (or "max"), and the period in microseconds
_CPU_BOUND = Path("/sys/fs/cgroup/cpu.max")


def open_files() -> int | None:
    """Return the limit of open files of this process; None if there is no limit."""
    if resource is None:
        return _WITHOUT_LIMITS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def raise_open_files(enough: int) -> int | None:
    """Raise this process's limit of open files to the hard limit, or to `enough` if there is no hard limit.

    A limit that is already higher stays.

    Returns:
        The limit now; None if there is no limit.

    Raises:
        OSError, ValueError: the limit cannot be raised (macOS has another limit below the hard limit).
    """
    if resource is None:
        return _WITHOUT_LIMITS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = enough if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY:
        return None
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft


def limit_memory(max_bytes: int) -> None:
    """Limit the bytes of data that this process may allocate (RLIMIT_DATA). Windows ignores the call.

    Raises:
        OSError, ValueError: a lower limit applies already.
    """
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (max_bytes, max_bytes))


def limit_cpu(seconds: int) -> None:
    """Limit the CPU time of this process: the system ends the process at the limit. On Windows, do nothing.

    `seconds` counts from the start of the process.

    Raises:
        OSError, ValueError: a lower limit applies already.
    """
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def memory_held() -> int:
    """Return the resident memory of this process in bytes.

    If the system reports only the peak, return the peak; if it reports neither, return 0. On Linux the peak
    would be wrong, because it starts from the memory of the parent process.
    """
    if resource is None:
        return 0
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return used if sys.platform == "darwin" else used * 1024


def on_cpu_timer(interrupt: Callable[[], object]) -> None:
    """Call `interrupt` in the main thread each time when a timer of `set_cpu_timer` expires.

    `interrupt` may raise an exception, to stop the code that runs. On a system without such a timer, the call
    does nothing.
    """
    if hasattr(signal, "SIGPROF"):
        signal.signal(signal.SIGPROF, lambda number, frame: interrupt())


def set_cpu_timer(seconds: float, again: float = 0.0) -> None:
    """Start a timer that expires after `seconds` of CPU time of this process, then every `again` seconds.

    Whenever the timer expires, the process calls the function of `on_cpu_timer`; without such a function, the
    process ends. If `again` is 0, the timer expires once. If `seconds` is 0, the call stops the timer. On
    Windows, the call does nothing: another process must limit the time.
    """
    if hasattr(signal, "SIGPROF"):
        signal.setitimer(signal.ITIMER_PROF, seconds, again)


def cores() -> int:
    """Return the number of CPU cores for this process, at least 1; on Linux at most its cgroup's quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    try:
        quota, period = _CPU_BOUND.read_text().split()
        return max(1, min(count, int(quota) // int(period)))
    except (OSError, ValueError):  # another system, or no bound
        return count
