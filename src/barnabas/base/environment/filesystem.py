"""The file system of logs behind an interface: a test can use a file system that loses or refuses writes.

All methods raise OSError as the system does. A file's bytes are durable after `File.sync`; its name is
durable after `sync_directory` of its folder.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from barnabas.base.system.files import IOV_MAX
from barnabas.base.types import Buffer


class Entry(NamedTuple):
    """A file or folder in a folder. Its size is in bytes, its modification time in ms since the epoch."""

    name: str
    size: int
    is_directory: bool
    modified_ms: int


class Problem(NamedTuple):
    """The reason why a folder cannot be used, with a hint.

    `in_use` is true if the reason is that another broker uses the folder.
    """

    text: str
    in_use: bool = False


class Volume(NamedTuple):
    """Size and free space of a folder's volume, in bytes."""

    size: int
    free: int


class File(Protocol):
    """An open file. A `position` is a number of bytes from the start of the file."""

    def read_at(self, size: int, position: int) -> bytes:
        """Read `size` bytes from `position` on; fewer only at the end of the file."""
        ...

    def is_cached(self, size: int, position: int) -> bool:
        """Whether `size` bytes from `position` on can be read without the disk; True if unknown."""
        ...

    def write_at(self, chunks: Sequence[Buffer], position: int) -> None:
        """Write all of `chunks` in order, from `position` on.

        After an OSError some of the bytes may have been written.
        """
        ...

    def send_to(self, descriptor: int, size: int, position: int) -> int:
        """Send up to `size` bytes from `position` on to the socket `descriptor`.

        Return the number of bytes sent; it is 0 only at the end of the file.

        Raises:
            BlockingIOError: the socket's buffer is full.
        """
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class Lock(Protocol):
    """An exclusive lock. It is held until it is released or the process ends."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    """A file system. Paths are strings with slashes."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file to read and write. If `create` is true, create a missing file.

        Raises:
            FileNotFoundError: the file is missing, and `create` is false.
        """
        ...

    def entries(self, path: str) -> list[Entry]:
        """Return the entries of a folder, in no order."""
        ...

    def make_directory(self, path: str) -> bool:
        """Create a folder with its parents; return False if a folder or file with this path exists."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file or folder. An existing file `target` is replaced."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def lock(self, path: str) -> Lock:
        """Create a file if it is missing, and lock it. Raises BlockingIOError if it is locked already."""
        ...

    def real_path(self, path: str) -> str:
        """Return the absolute path with symbolic links resolved; ValueError if it cannot be a path."""
        ...

    def absolute_path(self, path: str) -> str:
        """Return the absolute path, with symbolic links kept."""
        ...

    def folder_problem(self, path: str) -> Problem | None:
        """Return why a broker cannot store its data in a folder; None if it can.

        A missing folder is created.
        """
        ...

    def volume(self, path: str) -> Volume:
        """Return the volume of a folder. Raises OSError if the system does not report it."""
        ...

    def max_open_files(self) -> int | None:
        """Return the limit of this process's open files and connections; None without a limit."""
        ...


def exists(fs: FileSystem, path: str) -> bool:
    """Whether a file or folder exists; False also if its parent is not a folder."""
    folder, _, name = path.rpartition("/")
    try:
        return any(entry.name == name for entry in fs.entries(folder or "/"))
    except (FileNotFoundError, NotADirectoryError):
        return False


def read_file(fs: FileSystem, path: str) -> bytes:
    """Read the whole of a small file; FileNotFoundError if it is missing."""
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
    """Create a small file, or replace the content of an existing one. Raises OSError.

    The write is not durable: after a crash the file may be missing or incomplete.
    """
    file = fs.open(path, create=True)
    try:
        file.truncate(0)
        file.write_at([data], 0)
    finally:
        file.close()


def replace_file(fs: FileSystem, path: str, data: bytes) -> None:
    """Create a small file, or replace the content of an existing one, atomically and durably. Raises OSError.

    When the function returns, `data` survives a crash. After an earlier crash, the file has its old content
    or `data`.
    """
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


def make_durable_directory(fs: FileSystem, path: str) -> bool:
    """Create a folder and its parents durably. Return False if a folder or file with this path exists."""
    parent, slash, _ = path.rpartition("/")
    if parent and not _is_there(fs, parent):
        make_durable_directory(fs, parent)
    if not fs.make_directory(path):
        return False
    fs.sync_directory(parent or slash or ".")
    return True


def _is_there(fs: FileSystem, path: str) -> bool:
    try:
        return exists(fs, path)
    except OSError:  # its parent cannot be listed: another user has created it
        return True


class VectoredFile:
    """A base class of files. Its `write_at` writes any number of chunks with `write_some`.

    Calls such as pwritev take a limited number of chunks, and may write only a part of them. `write_at` makes
    as many calls as necessary. So a subclass, such as the file class of the tests, has only a `write_some`.
    """

    __slots__ = ()

    def write_some(self, chunks: Sequence[Buffer], position: int) -> int:
        """Write at most `IOV_MAX` chunks in order, from `position` on. Return the number of bytes written.

        One call may write only a part of the bytes.
        """
        raise NotImplementedError

    def write_at(self, chunks: Sequence[Buffer], position: int) -> None:
        if len(chunks) <= IOV_MAX:
            left = self.write_some(chunks, position)
            for chunk in chunks:
                left -= len(chunk)
            if left:
                self._write_rest(chunks, position, left + sum(map(len, chunks)))
            return
        for first in range(0, len(chunks), IOV_MAX):
            part = chunks[first : first + IOV_MAX]
            self.write_at(part, position)
            position += sum(map(len, part))

    def _write_rest(self, chunks: Sequence[Buffer], position: int, written: int) -> None:
        """Write the bytes of `chunks` that follow the first `written` bytes.

        `position` is the position in the file of the first chunk, also if this chunk has been written. One
        call of the system writes only a part of the bytes when the disk is full, or above 2 GiB.

        Raises OSError if nothing more can be written.
        """
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
