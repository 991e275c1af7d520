"""The file system as the log needs it, so that a test can bring one that loses, tears and refuses writes.

Everything raises OSError as the system does. A file's bytes are safe after `File.sync`; that a file exists
under its name, after `sync_directory` of the folder it lies in.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from barnabas.system import files, locks
from barnabas.system.files import pread, pwritev, sendfile
from barnabas.types import Buffer

#: how many chunks one system call takes; one more is EINVAL
IOV_MAX = files.IOV_MAX
#: what is made is for the broker's user alone, whatever the umask allows; what exists stays as it is
PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


class Entry(NamedTuple):
    """One name in a folder."""

    name: str
    size: int
    is_directory: bool
    modified_ms: int


class File(Protocol):
    """An open file, read and written by position."""

    def read_at(self, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the file's end."""
        ...

    def write_at(self, chunks: Sequence[Buffer], position: int) -> None:
        """All of `chunks`, one after the other. On OSError some of the bytes may have been written."""
        ...

    def send_to(self, descriptor: int, size: int, position: int) -> int:
        """Sends up to `size` bytes to a socket; how many it took, 0 only at the file's end.

        Raises:
            BlockingIOError: it takes none now.
        """
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class Lock(Protocol):
    """An exclusive claim, until it is released or the process ends."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    """Paths are strings with slashes."""

    def open(self, path: str, *, create: bool = False) -> File:
        """For reading and writing. `create` makes the file when it is missing; else FileNotFoundError."""
        ...

    def entries(self, path: str) -> list[Entry]:
        """In no order."""
        ...

    def make_directory(self, path: str) -> bool:
        """With its parents; False when it existed."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Replaces a `target` file that exists."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def lock(self, path: str) -> Lock:
        """Raises BlockingIOError when another holds the lock."""
        ...


def read_file(fs: FileSystem, path: str) -> bytes:
    """The whole of a small file; FileNotFoundError when there is none."""
    file = fs.open(path)
    try:
        parts = []
        position = 0
        while part := file.read_at(65_536, position):
            parts.append(part)
            position += len(part)
        return b"".join(parts)
    finally:
        file.close()


def write_file(fs: FileSystem, path: str, data: bytes) -> None:
    """A small file at once, with no promise: after a crash it may be missing or torn."""
    file = fs.open(path, create=True)
    try:
        file.truncate(0)
        file.write_at([data], 0)
    finally:
        file.close()


def replace_file(fs: FileSystem, path: str, data: bytes) -> None:
    """A small file, atomically and for good: after a crash it is the old one or the new one, whole."""
    temporary = path + ".tmp"
    file = fs.open(temporary, create=True)
    try:
        file.truncate(0)
        file.write_at([data], 0)
        file.sync()
    finally:
        file.close()
    fs.rename(temporary, path)
    fs.sync_directory(path.rpartition("/")[0])


class VectoredFile:
    """Writes any number of chunks through a call that takes few and may write less, as pwritev does.

    The bound and the short writes are dealt with here and nowhere else, so that every file system has them:
    the one in memory for tests refuses and shortens what the system would.
    """

    __slots__ = ()

    def write_some(self, chunks: Sequence[Buffer], position: int) -> int:
        """Writes at most `IOV_MAX` chunks, perhaps only the beginning of them; how many bytes it wrote."""
        raise NotImplementedError

    def write_at(self, chunks: Sequence[Buffer], position: int) -> None:
        """As `File.write_at`."""
        if len(chunks) <= IOV_MAX:
            written = self.write_some(chunks, position)
            if written != sum(map(len, chunks)):
                self._write_rest(chunks, position, written)
            return
        for first in range(0, len(chunks), IOV_MAX):
            part = chunks[first : first + IOV_MAX]
            self.write_at(part, position)
            position += sum(map(len, part))

    def _write_rest(self, chunks: Sequence[Buffer], position: int, written: int) -> None:
        """The system writes less than it was given when a disk fills up, or more than 2 GiB were given."""
        for chunk in chunks:
            size = len(chunk)
            skipped = min(written, size)
            written -= skipped
            position += skipped
            rest = memoryview(chunk)[skipped:]
            while rest:
                step = self.write_some([rest], position)
                if not step:
                    raise OSError(errno.EIO, "nothing could be written")
                rest = rest[step:]
                position += step


class OsFile(VectoredFile):
    """A `File` of the operating system."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def read_at(self, size: int, position: int) -> bytes:
        data = pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        missing = size - len(data)
        while missing and (data := pread(self._fd, missing, position + size - missing)):
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def write_some(self, chunks: Sequence[Buffer], position: int) -> int:
        return pwritev(self._fd, chunks, position)

    def send_to(self, descriptor: int, size: int, position: int) -> int:
        return sendfile(descriptor, self._fd, position, size)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        files.sync_data(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class OsLock:
    """Shuts out a second broker of ours, even one in this process, and Apache Kafka."""

    def __init__(self, path: str) -> None:
        self._fd = files.open_file(path, PRIVATE_FILE, create=True)
        try:
            locks.lock(self._fd, against_java=True)
        except OSError:
            os.close(self._fd)
            raise

    def release(self) -> None:
        os.close(self._fd)


class OsFileSystem:
    """The operating system's files. Others than the broker's user cannot read what it makes."""

    def open(self, path: str, *, create: bool = False) -> OsFile:
        return OsFile(files.open_file(path, PRIVATE_FILE, create=create))

    def entries(self, path: str) -> list[Entry]:
        found = []
        with os.scandir(path) as listing:
            for item in listing:
                try:
                    info = item.stat()
                except FileNotFoundError:  # a removal is at work
                    continue
                found.append(
                    Entry(item.name, info.st_size, stat.S_ISDIR(info.st_mode), info.st_mtime_ns // 1_000_000)
                )
        return found

    def make_directory(self, path: str) -> bool:
        try:
            os.mkdir(path, PRIVATE_FOLDER)
        except FileExistsError:
            return False
        except FileNotFoundError:
            os.makedirs(path, PRIVATE_FOLDER, exist_ok=True)
        return True

    def rename(self, source: str, target: str) -> None:
        files.rename(source, target)

    def remove(self, path: str) -> None:
        files.remove(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        files.sync_directory(path)

    def lock(self, path: str) -> OsLock:
        return OsLock(path)
