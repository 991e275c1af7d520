"""The file system as the log needs it, so that a test can bring one that loses, tears and refuses writes.

Everything raises OSError as the system does. A file's bytes are safe after `File.sync`; that a file exists
under its name, after `sync_directory` of the folder it lies in.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from barnabas.system.files import IOV_MAX
from barnabas.types import Buffer


class Entry(NamedTuple):
    """One name in a folder."""

    name: str
    size: int
    is_directory: bool
    modified_ms: int


class Problem(NamedTuple):
    """Why a folder cannot be used, with the cure."""

    text: str
    in_use: bool = False


class Volume(NamedTuple):
    """The volume that a folder lies on, in bytes."""

    size: int
    free: int


class File(Protocol):
    """An open file, read and written by position."""

    def read_at(self, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the file's end."""
        ...

    def is_cached(self, size: int, position: int) -> bool:
        """Whether reading these bytes does not wait for the disk; True where the system does not tell."""
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

    def real_path(self, path: str) -> str:
        """The absolute path without symbolic links; ValueError for what cannot be a path."""
        ...

    def absolute_path(self, path: str) -> str:
        """The absolute path, with its symbolic links."""
        ...

    def folder_problem(self, path: str) -> Problem | None:
        """What keeps a broker from storing its data in a folder, or None; one that is missing is made."""
        ...

    def volume(self, path: str) -> Volume:
        """The volume of a folder. Raises OSError where the system does not tell."""
        ...

    def system_path(self, path: str) -> str | None:
        """The path by which other programs reach a file; None if they cannot."""
        ...

    def most_open_files(self) -> int | None:
        """How many files and connections this process may have open; None when there is no limit."""
        ...


def exists(fs: FileSystem, path: str) -> bool:
    """Whether there is such a file or folder; False as well for what lies in no folder."""
    folder, _, name = path.rpartition("/")
    try:
        return any(entry.name == name for entry in fs.entries(folder or "/"))
    except (FileNotFoundError, NotADirectoryError):
        return False


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


def make_durable_directory(fs: FileSystem, path: str) -> bool:
    """Make a folder with its parents, so that a power cut does not take it; False when it existed."""
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
    except OSError:  # it lies in a folder that cannot be listed: somebody else has made it
        return True


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
