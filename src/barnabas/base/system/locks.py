"""Locks on files. The system releases them when the process that holds them ends."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path
from typing import Any

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]
    import msvcrt

    _msvcrt: Any = msvcrt

#: struct flock on 64-bit Linux: type, whence, start, length, pid
_FLOCK = struct.Struct("hhqqi4x")


def lock(fd: int, *, against_java: bool = False) -> None:
    """Lock an open file until the descriptor is closed, without waiting for the lock.

    Two descriptors of one process exclude each other, too.

    Args:
        against_java: exclude Java programs too, whose locks are POSIX record locks; `fd` must be writable. On
            Windows there is only one kind of lock.

    Raises:
        BlockingIOError: another descriptor holds the lock.
        OSError: the file system does not support locks.
    """
    if fcntl is None:
        _lock_first_byte(fd)
        return
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if against_java:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_locked(fd: int) -> bool:
    """Whether another descriptor holds a `lock` on the same file.

    The descriptor `fd` itself must not hold the lock: this call would release it.
    """
    try:
        if fcntl is not None:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(fd, fcntl.LOCK_UN)
        else:
            _lock_first_byte(fd)
            _msvcrt.locking(fd, _msvcrt.LK_UNLCK, 1)
    except BlockingIOError:
        return True
    return False


def owner(path: Path) -> int | None:
    """Return the id of the process that has locked the file `path` with `against_java`.

    Return None if no process has locked it, or the process is unknown. Only 64-bit Linux reports it.
    """
    if fcntl is None or not sys.platform.startswith("linux") or sys.maxsize < 2**32:
        return None
    try:
        with path.open("r+b") as file:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except OSError:
        return None
    return int(pid) if kind != fcntl.F_UNLCK and pid > 0 else None


def _lock_first_byte(fd: int) -> None:
    """Lock the first byte, which need not exist. Raises BlockingIOError if it is locked already."""
    os.lseek(fd, 0, os.SEEK_SET)
    try:
        _msvcrt.locking(fd, _msvcrt.LK_NBLCK, 1)
    except PermissionError as error:
        raise BlockingIOError(error.errno, "another process has the lock") from error
