"""Reads and writes files by position, makes them durable, and sets their permissions.

All functions raise OSError as the system does. `pread`, `pwritev` and `sendfile` are the system's own
functions if it has them, so that this module adds no cost.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from barnabas.base.types import Buffer

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]

#: how many chunks one `pwritev` takes; one more is EINVAL
IOV_MAX: int = os.sysconf("SC_IOV_MAX") if hasattr(os, "sysconf") else 1024

#: Windows translates line ends unless told otherwise, and lets children inherit descriptors.
_FLAGS = (
    getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOINHERIT", 0) | getattr(os, "O_BINARY", 0)
)  # fmt: skip
_READ_WRITE = os.O_RDWR | _FLAGS
_DIRECTORY: int | None = getattr(os, "O_DIRECTORY", None)
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
_IS_WINDOWS = sys.platform == "win32"

#: Windows refuses to rename or remove a file while a virus scanner or an indexer reads it. So both are tried
#: again this often, after this pause: 50 ms in all, because the event loop may be waiting.
_RETRIES, _RETRY_S = 5, 0.01


# --- by position ---

#: Locks by descriptor: all threads share its position, so no other call may come between a seek and its use.
_seeking = [threading.Lock() for _ in range(64)]


def _read_after_seeking(fd: int, size: int, position: int, /) -> bytes:
    with _seeking[fd % len(_seeking)]:
        before = os.lseek(fd, 0, os.SEEK_CUR)
        try:
            os.lseek(fd, position, os.SEEK_SET)
            return os.read(fd, size)
        finally:
            os.lseek(fd, before, os.SEEK_SET)


def _write_after_seeking(fd: int, chunks: Sequence[Buffer], position: int, /) -> int:
    if len(chunks) > IOV_MAX:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    with _seeking[fd % len(_seeking)]:
        os.lseek(fd, position, os.SEEK_SET)
        return os.write(fd, data)


def _send_nothing(out_fd: int, in_fd: int, offset: int, count: int, /) -> NoReturn:
    raise BlockingIOError(errno.EAGAIN, "this system cannot send a file by itself")


#: `os.pread`
pread: Callable[[int, int, int], bytes] = getattr(os, "pread", _read_after_seeking)
#: the distance of the bytes that `is_cached` tests: the kernel reads this much from a disk at once
_CACHED_TOGETHER = 128 * 1024
_PAGE = 4096
_NO_WAIT: int | None = getattr(os, "RWF_NOWAIT", None)
#: errors of file systems that do not support the test (tmpfs, which has no disk, and some of networks)
_CANNOT_TELL = frozenset((errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL))
_ignored = [bytearray(1)]


def is_cached(fd: int, size: int, position: int) -> bool:
    """Whether the page cache has `size` bytes from `position` on; True if the system does not report it.

    Tests one byte of each 128 KB. Each test takes half a microsecond.
    """
    if _NO_WAIT is None or not size:
        return True
    last = position + size - 1
    try:
        os.preadv(fd, _ignored, position, _NO_WAIT)
        if last - position >= _PAGE or last % _PAGE < position % _PAGE:
            for probe in range(position + _CACHED_TOGETHER, last, _CACHED_TOGETHER):
                os.preadv(fd, _ignored, probe, _NO_WAIT)
            os.preadv(fd, _ignored, last, _NO_WAIT)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _CANNOT_TELL:
            raise
    return True


#: `os.pwritev`; may write only a part of the bytes
pwritev: Callable[[int, Sequence[Buffer], int], int] = getattr(os, "pwritev", _write_after_seeking)
#: `os.sendfile`; on a system without it, a function that always raises BlockingIOError
sendfile: Callable[[int, int, int, int], int] = getattr(os, "sendfile", _send_nothing)


# --- durability ---


def _flush_disk_cache(fd: int, /) -> None:
    """On macOS, fsync leaves the bytes in the disk's own cache; this function writes them to the disk."""
    try:
        fcntl.fcntl(fd, _FULL_SYNC)  # type: ignore[arg-type]
    except OSError:  # a file system that does not know it, such as a network's
        os.fsync(fd)


#: A file's bytes and size reach the disk.
sync_data: Callable[[int], None] = (
    _flush_disk_cache if _FULL_SYNC is not None else getattr(os, "fdatasync", os.fsync)
)


def sync_directory(path: str) -> None:
    """Make the names in a folder durable. Does nothing on Windows: NTFS has a journal of names."""
    if _DIRECTORY is None:
        return
    fd = os.open(path, os.O_RDONLY | _DIRECTORY | _FLAGS)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# --- names and permissions ---


def open_file(path: str, mode: int, *, create: bool) -> int:
    """Open a file for reading and writing. Other code can rename or remove it while it is open.

    Args:
        create: whether to create a missing file. If false, a missing file raises FileNotFoundError.
        mode: the permissions of a new file. On Windows the file inherits the permissions of its folder.
    """
    if _IS_WINDOWS:
        return _open_shared(path, write=True, create=create)
    return os.open(path, _READ_WRITE | (os.O_CREAT if create else 0), mode)


#: For `open(..., "rb", opener=shared_opener)`: other programs may rename and remove the file meanwhile.
shared_opener: Callable[[str, int], int] | None = (
    (lambda path, _: _open_shared(os.fspath(path), write=False, create=False)) if _IS_WINDOWS else None
)


def rename(source: str, target: str) -> None:
    """Rename a file or folder. An existing file `target` is replaced."""
    if _IS_WINDOWS:
        _persist(os.replace, source, target)
    else:
        os.rename(source, target)


def remove(path: str) -> None:
    if _IS_WINDOWS:
        _persist(os.unlink, path)
    else:
        os.unlink(path)


def is_read_only(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder's file system is mounted read-only; False if the system does not report it."""
    if not hasattr(os, "statvfs"):
        return False
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def user_id() -> str:
    """Return the id of the user that runs this process; ``(unknown)`` on Windows."""
    return str(os.geteuid()) if hasattr(os, "geteuid") else "(unknown)"


def _persist(act: Callable[..., None], *paths: str) -> None:
    for _ in range(_RETRIES):
        with contextlib.suppress(PermissionError):
            return act(*paths)
        time.sleep(_RETRY_S)
    return act(*paths)


def _open_shared(path: str, *, write: bool, create: bool) -> int:
    """Open a file on Windows so that processes may rename or remove it while it is open.

    The file is opened for reading and, if `write` is true, for writing. `create` creates a missing file.
    """
    import _winapi  # as multiprocessing and asyncio do
    import msvcrt

    winapi: Any = _winapi
    crt: Any = msvcrt
    share_all = 1 | 2 | 4  # FILE_SHARE_READ, _WRITE, _DELETE
    open_existing, open_always = 3, 4
    access = winapi.GENERIC_READ | (winapi.GENERIC_WRITE if write else 0)
    handle = winapi.CreateFile(path, access, share_all, 0, open_always if create else open_existing, 0, 0)
    kind = os.O_RDWR if write else os.O_RDONLY
    return int(crt.open_osfhandle(handle, kind | _FLAGS))
