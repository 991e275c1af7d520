"""Limits the number of log files that are open at once.

A `LogFile` opens itself when it is used. When more than `capacity` are open, the cache closes files that were
not used recently (the CLOCK rule). So a thousand idle partitions need no file descriptors.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from barnabas.base.environment.filesystem import File, FileSystem
from barnabas.base.types import Buffer, Chunk

#: fewest bytes that `warm` loads: a reader of an index next reads its log, and continues there
_READ_AHEAD = 256 * 1024
_WARMED_AT_ONCE = 256 * 1024

#: a read of at least this size returns a slice of the file, whose bytes are read when they are sent
SLICE_BYTES = 64 * 1024


class OpenFiles:
    """The open log files of one broker. Only one thread may use this object, usually the event loop's.

    Args:
        fs: the file system.
        capacity: largest number of open files, not counting pinned ones. If more are open, this object closes
            files that were not used lately.
    """

    def __init__(self, fs: FileSystem, capacity: int = 1024) -> None:
        self.fs = fs
        #: most files that may be open, not counting pinned ones
        self.capacity = capacity
        #: whether a read may wait for the disk: else it raises `ColdRead`
        self.may_wait = True
        #: open files that are not pinned
        self._idle: dict[LogFile, None] = {}

    @contextmanager
    def without_waiting(self) -> Iterator[None]:
        """Within this context, raise `ColdRead` for reads that would wait for the disk.

        Do not await in it.
        """
        self.may_wait = False
        try:
            yield
        finally:
            self.may_wait = True

    def __len__(self) -> int:
        return len(self._idle)

    def add(self, file: LogFile) -> None:
        """Add an open file, and close others if too many are open."""
        idle = self._idle
        idle[file] = None
        chances = 2 * len(idle)
        while len(idle) > self.capacity and chances:
            chances -= 1
            oldest = next(iter(idle))
            del idle[oldest]
            if oldest is file or oldest.used_lately:
                oldest.used_lately = False
                idle[oldest] = None
            else:
                oldest.close_handle()

    def close_idle(self) -> bool:
        """Close every open file that is not pinned. Return whether any was closed.

        `LogFile` calls this when the process has reached its limit of open files.
        """
        idle, self._idle = self._idle, {}
        for file in idle:
            file.close_handle()
        return bool(idle)

    def discard(self, file: LogFile) -> None:
        """Stop counting a file that is closed or pinned."""
        self._idle.pop(file, None)


class LogFile:
    """A file of a log, open or not. A pinned file stays open, because a thread uses it.

    There are thousands of these objects, so they share the strings of their paths.

    Args:
        files: the open files of the broker, which limit their number.
        path: path of the file, or of its folder if there is a `name`.
        name: name of the file in its folder; "" if `path` is the whole path.
    """

    __slots__ = ("_closing", "_files", "_folder", "_name", "handle", "pins", "used_lately")

    def __init__(self, files: OpenFiles, path: str, name: str = "") -> None:
        self._folder = path
        self._name = name
        self.used_lately = False
        self.pins = 0
        self._files = files
        #: the open file; None while it is closed
        self.handle: File | None = None
        self._closing = False

    @property
    def path(self) -> str:
        return f"{self._folder}/{self._name}" if self._name else self._folder

    def read_at(self, size: int, position: int) -> bytes:
        self.used_lately = True
        handle = self.handle or self.open()
        if not self._files.may_wait and not handle.is_cached(size, position):
            raise ColdRead(self, size, position)
        return handle.read_at(size, position)

    @property
    def may_wait(self) -> bool:
        """Whether reads may wait for the disk. If false, a read that would have to wait raises `ColdRead`."""
        return self._files.may_wait

    def read_now(self, size: int, position: int) -> bytes:
        """Return `size` bytes from `position` on, fewer at the end of the file, even if the disk is slow.

        Any thread can call it while the file is pinned.
        """
        self.used_lately = True
        return (self.handle or self.open()).read_at(size, position)

    def check_cached(self, size: int, position: int) -> None:
        """Raise ColdRead if a read of these bytes would wait for the disk, and `may_wait` is False."""
        if not self._files.may_wait and not (self.handle or self.open()).is_cached(size, position):
            raise ColdRead(self, size, position)

    def send_to(self, descriptor: int, size: int, position: int) -> int:
        self.used_lately = True
        return (self.handle or self.open()).send_to(descriptor, size, position)

    def write_at(self, chunks: Sequence[Buffer], position: int) -> None:
        """Write `chunks` one after the other from `position` on.

        A write at 0 creates a missing file. A later write to a deleted file raises FileNotFoundError.
        """
        self.used_lately = True
        (self.handle or self.open(create=not position)).write_at(chunks, position)

    def truncate(self, size: int) -> None:
        """Set the file's size to `size` bytes. Create the file if it does not exist."""
        (self.handle or self.open(create=True)).truncate(size)

    @property
    def is_open(self) -> bool:
        return self.handle is not None

    def pin(self) -> None:
        """Open the file and keep it open until `unpin`, so that `sync` may run in another thread."""
        if self.handle is None:
            self.open()
        self._files.discard(self)
        self.pins += 1

    def unpin(self) -> None:
        self.pins -= 1
        if self.pins:
            return
        if self._closing:
            self.close_handle()
        else:
            self._files.add(self)

    def sync(self) -> None:
        """Fsync the file. Any thread can call it while the file is pinned."""
        (self.handle or self.open()).sync()

    def rename(self, path: str, *, must_exist: bool = False) -> None:
        """Rename the file, open or not.

        If the file does not exist, change only the path in memory. With `must_exist`, raise FileNotFoundError
        in this case, and change nothing.
        """
        try:
            self._files.fs.rename(self.path, path)
        except FileNotFoundError:
            if must_exist:
                raise
        self._folder, self._name = path, ""

    def folder_renamed(self, before: str, after: str) -> None:
        """Replace `before` by `after` in the file's path, because its folder was renamed.

        The file may be open. Do nothing if the file is not in the folder `before`.
        """
        if self._folder == before:
            self._folder = after
        elif self._folder.startswith(f"{before}/"):
            self._folder = after + self._folder[len(before) :]

    def remove(self) -> None:
        """Close and delete the file, if it exists."""
        self.close()
        with suppress(FileNotFoundError):
            self._files.fs.remove(self.path)

    def close(self) -> None:
        """Close the file; if it is pinned, close it when it is unpinned."""
        self._files.discard(self)
        if self.pins:
            self._closing = True
        else:
            self.close_handle()

    def move_to(self, files: OpenFiles) -> None:
        """Let another `OpenFiles` manage this closed file from now on."""
        self._files = files

    def close_handle(self) -> None:
        """Close the handle. The next use opens it again."""
        handle, self.handle = self.handle, None
        self._closing = False
        if handle is not None:
            handle.close()

    def open(self, *, create: bool = False) -> File:
        """Open the closed file, and return it. With `create`, create it if it does not exist.

        Raises OSError.
        """
        files = self._files
        try:
            handle = files.fs.open(self.path, create=create)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not files.close_idle():
                raise
            handle = files.fs.open(self.path, create=create)
        self.handle = handle
        self._files.add(self)
        return handle


class ColdRead(Exception):
    """Raised if a read of `size` bytes from `position` on in `file` would wait for the disk.

    Let `logs.cold_reads` load the data into memory, then read again.
    """

    def __init__(self, file: LogFile, size: int, position: int) -> None:
        super().__init__(f"{file.path}: {size} bytes from {position} on are not in memory")
        self.file = file
        self.size = size
        self.position = position

    @property
    def extent(self) -> tuple[LogFile, int, int]:
        """The file and the range of the read: equal values mean the same read."""
        return self.file, self.size, self.position

    def warm(self) -> None:
        """Read the data into memory. Any thread can call it while the file is pinned. Raises OSError."""
        position, end = self.position, self.position + max(self.size, _READ_AHEAD)
        while position < end:
            data = self.file.read_now(min(_WARMED_AT_ONCE, end - position), position)
            if not data:
                return
            position += len(data)


class FileSlice:
    """A part of a log's file: `size` bytes from `position` on. They are read when they are sent.

    As long as this object exists, the file stays open. So the bytes can be read even after the file was
    deleted.
    """

    __slots__ = ("_file", "_position", "_size")

    def __init__(self, file: LogFile, position: int, size: int) -> None:
        file.pin()
        self._file = file
        self._position = position
        self._size = size

    def __del__(self) -> None:
        self._file.unpin()

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return self._file.read_at(self._size, self._position)

    def read(self, start: int, size: int) -> bytes:
        return self._file.read_at(min(size, self._size - start), self._position + start)

    def part(self, start: int, size: int) -> Chunk:
        """Return `size` of these bytes, from byte number `start` of the slice on.

        A part smaller than `SLICE_BYTES` is read at once.
        """
        if size < SLICE_BYTES:
            return self.read(start, size)
        return FileSlice(self._file, self._position + start, size)

    def send_to(self, descriptor: int, start: int) -> int:
        return self._file.send_to(descriptor, self._size - start, self._position + start)
