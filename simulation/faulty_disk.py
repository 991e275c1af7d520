"""A disk in memory that loses, tears and refuses writes: the faults that the log must survive.

It implements `barnabas.base.environment.filesystem.FileSystem`. A power cut (`crash`) keeps all data that was
fsynced. Chance decides about the rest. Of a file's unsynced bytes, each 64-byte sector may be on the disk or
not. Of a folder's unsynced changes of names, only the first few are on the disk. So a test finds code that
relies on an order of writes without fsync.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from barnabas.base.environment.clock import Clock
from barnabas.base.environment.filesystem import Entry, Problem, VectoredFile, Volume
from barnabas.base.system.files import IOV_MAX
from barnabas.base.types import Buffer

SECTOR = 64
#: the size of the volume that brokers tell their clients
_VOLUME = 1 << 40


@dataclass(eq=False, slots=True)
class _Data:
    """The bytes of a file: as programs see them, and as they are safely on the disk."""

    current: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    #: when it was changed last, in milliseconds since the epoch
    modified_ms: int = 0
    #: an fsync failed: what it should have written stays lost, whatever later ones say
    doomed: bool = False
    #: whether reads do not wait for the disk: until a crash, and from the first read after it
    is_cached: bool = True

    def crash(self, chance: random.Random) -> None:
        """Simulate a power cut. Each changed sector may be on the disk, and the file may have any size
        between old and new.
        """
        old, new = self.durable, bytes(self.current)
        size = chance.choice([len(old), len(new), chance.randint(*sorted((len(old), len(new))))])
        survived = bytearray(size)
        for start in range(0, size, SECTOR):
            source = new if chance.random() < 0.5 else old
            sector = source[start : min(start + SECTOR, size)]
            survived[start : start + len(sector)] = sector
        self.current = survived
        self.durable = bytes(survived)
        self.doomed = self.is_cached = False

    def sync_all(self) -> None:
        if not self.doomed:
            self.durable = bytes(self.current)

    def grow_cold(self) -> None:
        self.is_cached = False


@dataclass(eq=False, slots=True)
class _Folder:
    """The names in a folder: as programs see them, as they are safely on the disk, and the changes between
    the two.
    """

    current: dict[str, _Node] = field(default_factory=dict)
    durable: dict[str, _Node] = field(default_factory=dict)
    unsynced: list[dict[str, _Node | None]] = field(default_factory=list)

    def change(self, names: dict[str, _Node | None]) -> None:
        """Change some names in one step. None removes a name."""
        _apply(names, self.current)
        self.unsynced.append(names)

    def sync(self) -> None:
        self.durable = dict(self.current)
        self.unsynced.clear()

    def sync_all(self) -> None:
        self.sync()
        for node in self.current.values():
            node.sync_all()

    def grow_cold(self) -> None:
        for node in self.current.values():
            node.grow_cold()

    def crash(self, chance: random.Random) -> None:
        for names in self.unsynced[: chance.randint(0, len(self.unsynced))]:
            _apply(names, self.durable)
        self.current = dict(self.durable)
        self.unsynced.clear()
        for node in self.current.values():
            node.crash(chance)


_Node: TypeAlias = _Data | _Folder


def _apply(names: dict[str, _Node | None], to: dict[str, _Node]) -> None:
    for name, node in names.items():
        if node is None:
            to.pop(name, None)
        else:
            to[name] = node


class PowerCut(BaseException):
    """The power failed during an operation. The disk works again only after `FaultyDisk.crash`."""


class FaultyDisk:
    """A file system in memory, with faults that a test sets.

    Attributes:
        changes_left: the number of changes (of bytes, names, or what is fsynced) before a power cut. The next
            change and every later call raise PowerCut. None means no power cut.
        space: the free bytes; None means no limit. With 0, no folder can be made.
        max_at_once: the largest number of bytes that one write accepts; None means all.
        refuse: called before each operation with its name (a method of `FileSystem` or `File`, "write" and
            "read" for short) and the path. If it returns an error, the operation raises it and does nothing.
        fail_writes, fail_syncs, fail_reads: whether such a call raises EIO. As in Linux, later fsyncs succeed
            and do not write the data of a failed one.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock
        self.space: int | None = None
        self.max_at_once: int | None = None
        self.changes_left: int | None = None
        self.refuse: Callable[[str, str], Exception | None] | None = None
        self.fail_writes = False
        self.fail_syncs = False
        self.fail_reads = False
        #: whether an fsync has failed: only a crash shows what programs still see and the disk never got
        self.has_lost_writes = False
        #: how many files and connections the broker is told it may have open
        self.open_files_limit: int | None = None
        #: what was opened and not closed
        self.open_files = 0
        self._root = _Folder()
        self._locked: set[str] = set()
        #: the contents of folders whose disks are not mounted
        self._unmounted: dict[str, _Node] = {}

    def unmount(self, path: str) -> None:
        """Put an empty folder in the place of a folder without open files. First fsync all files in it."""
        folder, name = self._parent(path)
        node = folder.current[name]
        node.sync_all()
        self._unmounted[path] = node
        folder.current[name] = folder.durable[name] = _Folder()

    def mount(self, path: str) -> None:
        """Undo `unmount`. The disk drops all that was written to the empty folder."""
        folder, name = self._parent(path)
        folder.current[name] = folder.durable[name] = self._unmounted.pop(path)

    def crash(self, chance: random.Random) -> None:
        """Simulate a power cut: lose unsynced data at random, and close all files and locks."""
        self._root.crash(chance)
        self._locked.clear()
        self.has_lost_writes = False
        self.mend()

    def process_ended(self) -> None:
        """Close all files and locks, because the process has ended. The page cache keeps all written data."""
        self._locked.clear()
        self.open_files = 0

    def drop_cache(self) -> None:
        """Empty the page cache, so that the first read of each file waits for the disk."""
        self._root.grow_cold()

    def mend(self) -> None:
        """End all faults."""
        self.space = self.max_at_once = self.changes_left = self.refuse = None
        self.fail_writes = self.fail_syncs = self.fail_reads = False

    # --- FileSystem ---

    def open(self, path: str, *, create: bool = False) -> _OpenFile:
        self.ask("open", path)
        folder, name = self._parent(path)
        node = folder.current.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.count_change()
            node = _Data(modified_ms=self.now_ms())
            folder.change({name: node})
        if not isinstance(node, _Data):
            raise IsADirectoryError(errno.EISDIR, "is a folder", path)
        self.open_files += 1
        return _OpenFile(self, node, path)

    def entries(self, path: str) -> list[Entry]:
        self.ask("entries", path)
        return [
            Entry(name, len(node.current), False, node.modified_ms)
            if isinstance(node, _Data)
            else Entry(name, 0, True, 0)
            for name, node in self._folder(path).current.items()
        ]

    def make_directory(self, path: str) -> bool:
        self.ask("make_directory", path)
        folder = self._root
        made = False
        for name in _names(path):
            node = folder.current.get(name)
            if node is None:
                if self.space == 0:
                    raise OSError(errno.ENOSPC, "the disk is full", path)
                node = _Folder()
                folder.change({name: node})
                made = True
            if not isinstance(node, _Folder):
                raise NotADirectoryError(errno.ENOTDIR, "not a folder", path)
            folder = node
        return made

    def rename(self, source: str, target: str) -> None:
        self.ask("rename", source)
        folder, name = self._parent(source)
        to_folder, to_name = self._parent(target)
        node = folder.current.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        if folder is not to_folder:
            raise OSError(errno.EXDEV, "renames between folders are not played here", source)
        self.count_change()
        folder.change({name: None, to_name: node})

    def remove(self, path: str) -> None:
        self.ask("remove", path)
        folder, name = self._parent(path)
        if not isinstance(folder.current.get(name), _Data):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self.count_change()
        folder.change({name: None})

    def remove_tree(self, path: str) -> None:
        self.ask("remove_tree", path)
        folder, name = self._parent(path)
        if name not in folder.current:
            raise FileNotFoundError(errno.ENOENT, "no such folder", path)
        self.count_change()
        folder.change({name: None})

    def sync_directory(self, path: str) -> None:
        self.ask("sync_directory", path)
        self.check(self.fail_syncs)
        self.count_change()
        self._folder(path).sync()

    def lock(self, path: str) -> _Lock:
        if path in self._locked:
            raise BlockingIOError(errno.EAGAIN, "locked", path)
        self._locked.add(path)
        return _Lock(self._locked, path)

    def real_path(self, path: str) -> str:
        return self.absolute_path(path)

    def absolute_path(self, path: str) -> str:
        return path if path.startswith("/") else f"/{path}"

    def folder_problem(self, path: str) -> Problem | None:
        return None

    def volume(self, path: str) -> Volume:
        return Volume(_VOLUME, _VOLUME if self.space is None else min(self.space, _VOLUME))

    def max_open_files(self) -> int | None:
        return self.open_files_limit

    # --- inside ---

    def ask(self, operation: str, path: str) -> None:
        error = None if self.refuse is None else self.refuse(operation, path)
        if error is not None:
            raise error

    def now_ms(self) -> int:
        """Return the time for the timestamps of files; 0 on a disk without a clock."""
        return 0 if self._clock is None else self._clock.now_ms()

    def check(self, fails: bool) -> None:
        if fails:
            raise OSError(errno.EIO, "the disk is broken")

    def count_change(self) -> None:
        if self.changes_left is not None:
            if not self.changes_left:
                raise PowerCut
            self.changes_left -= 1

    def take_space(self, size: int) -> int:
        """Reserve space for a write of `size` bytes, and return how many bytes fit.

        Raises:
            OSError: ENOSPC, because no byte fits.
        """
        fits = size if self.max_at_once is None else min(size, self.max_at_once)
        if self.space is not None:
            fits = min(fits, self.space)
            self.space -= fits
            if size and not fits:
                raise OSError(errno.ENOSPC, "the disk is full")
        return fits

    def _folder(self, path: str) -> _Folder:
        folder = self._root
        for name in _names(path):
            node = folder.current.get(name)
            if not isinstance(node, _Folder):
                raise FileNotFoundError(errno.ENOENT, "no such folder", path)
            folder = node
        return folder

    def _parent(self, path: str) -> tuple[_Folder, str]:
        parent, _, name = path.rpartition("/")
        return self._folder(parent), name


class _OpenFile(VectoredFile):
    def __init__(self, disk: FaultyDisk, data: _Data, path: str) -> None:
        self._disk = disk
        self._path = path
        self._data = data
        self._is_open = True

    def read_at(self, size: int, position: int) -> bytes:
        self._use("read", self._disk.fail_reads)
        self._data.is_cached = True
        return bytes(self._data.current[position : position + size])

    def is_cached(self, size: int, position: int) -> bool:
        return self._data.is_cached

    def send_to(self, descriptor: int, size: int, position: int) -> int:
        return os.write(descriptor, self.read_at(size, position))

    def write_some(self, chunks: Sequence[Buffer], position: int) -> int:
        self._use("write", self._disk.fail_writes)
        if len(chunks) > IOV_MAX:
            raise OSError(errno.EINVAL, f"more than {IOV_MAX} chunks at once")
        self._disk.count_change()
        data = b"".join(chunks)
        fits = self._disk.take_space(len(data))
        current = self._data.current
        self._data.modified_ms = self._disk.now_ms()
        if position > len(current):
            current.extend(bytes(position - len(current)))
        current[position : position + fits] = data[:fits]
        return fits

    def truncate(self, size: int) -> None:
        self._use("truncate", self._disk.fail_writes)
        self._disk.count_change()
        current = self._data.current
        self._data.modified_ms = self._disk.now_ms()
        current.extend(bytes(max(size - len(current), 0)))
        del current[size:]

    def sync(self) -> None:
        try:
            self._use("sync", False)
        except Exception:
            self._data.doomed = self._disk.has_lost_writes = True
            raise
        if self._disk.fail_syncs:
            self._data.doomed = self._disk.has_lost_writes = True
        self._disk.check(self._disk.fail_syncs)
        self._disk.count_change()
        if not self._data.doomed:
            self._data.durable = bytes(self._data.current)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._disk.open_files -= 1

    def _use(self, operation: str, fails: bool) -> None:
        if not self._is_open:
            raise OSError(errno.EBADF, "the file is closed")
        self._disk.ask(operation, self._path)
        self._disk.check(fails)


class _Lock:
    def __init__(self, locked: set[str], path: str) -> None:
        self.release: Callable[[], None] = lambda: locked.discard(path)


def _names(path: str) -> Iterable[str]:
    return filter(None, path.split("/"))
