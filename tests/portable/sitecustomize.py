"""Hides functions that systems other than Linux lack, from every Python with this folder on its path.

`make test-portable` runs tests with it. The brokers and workers that they start use it, too. `msvcrt` is a
fake with locks only. They exclude each other as Windows' own locks do, but they do not prevent reads.
"""

from __future__ import annotations

# What needs the hidden things for itself, and would not do without them on this system, is imported before.
import asyncio
import errno
import fcntl
import multiprocessing.connection  # noqa: F401
import os
import pty  # noqa: F401
import shutil
import signal
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401
import types

HIDDEN_MODULES = ("fcntl", "resource", "uvloop")
HIDDEN_NAMES = {
    os: ("pread", "preadv", "pwrite", "pwritev", "sendfile", "fdatasync", "sysconf", "statvfs", "geteuid"),
    signal: ("SIGPROF", "ITIMER_PROF"),
}
#: without them a folder cannot be opened to be synced, and nobody tells what the page cache has
FLAGS = ("O_DIRECTORY", "O_CLOEXEC", "RWF_NOWAIT")


def _locking(fd: int, mode: int, count: int) -> None:
    if mode == _msvcrt.LK_UNLCK:
        fcntl.flock(fd, fcntl.LOCK_UN)
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise PermissionError(errno.EACCES, "Permission denied") from None


def _no_signal_handlers(self: object, number: int, callback: object, *arguments: object) -> None:
    raise NotImplementedError


_msvcrt = types.ModuleType("msvcrt")
_msvcrt.locking = _locking  # type: ignore[attr-defined]
_msvcrt.LK_NBLCK = 2  # type: ignore[attr-defined]
_msvcrt.LK_UNLCK = 0  # type: ignore[attr-defined]

for _name in HIDDEN_MODULES:
    sys.modules[_name] = None  # type: ignore[assignment]
for _module, _names in HIDDEN_NAMES.items():
    for _name in _names:
        delattr(_module, _name)
for _name in FLAGS:
    delattr(os, _name)
sys.modules["msvcrt"] = _msvcrt
shutil._USE_CP_SENDFILE = False  # type: ignore[attr-defined]
asyncio.SelectorEventLoop.add_signal_handler = _no_signal_handlers  # type: ignore[assignment]
