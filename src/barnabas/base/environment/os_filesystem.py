"""Implements the interfaces of `barnabas.base.environment.filesystem` with the system's files."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

from barnabas.base.environment.filesystem import Entry, Problem, VectoredFile, Volume
from barnabas.base.environment.folders import folder_problem
from barnabas.base.system import files, limits, locks
from barnabas.base.system.files import pread, pwritev, sendfile
from barnabas.base.types import Buffer

#: new files are for the broker's user only, whatever the umask allows; existing ones keep their mode
PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


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

    def is_cached(self, size: int, position: int) -> bool:
        return files.is_cached(self._fd, size, position)

    def write_at(self, chunks: Sequence[Buffer], position: int) -> None:
        # Nearly every write is a batch of two chunks, which the system takes whole. All others begin again.
        if len(chunks) != 2 or pwritev(self._fd, chunks, position) != len(chunks[0]) + len(chunks[1]):
            super().write_at(chunks, position)

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
    """A lock file that excludes other brokers (Barnabas, Apache Kafka), in this process and in all others."""

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
    """The operating system's files. Only the broker's user can read the files that it creates."""

    def open(self, path: str, *, create: bool = False) -> OsFile:
        return OsFile(files.open_file(path, PRIVATE_FILE, create=create))

    def entries(self, path: str) -> list[Entry]:
        found = []
        with os.scandir(path) as listing:
            for item in listing:
                try:
                    info = item.stat()
                except FileNotFoundError:  # something is removing the folder
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

    def real_path(self, path: str) -> str:
        return os.path.realpath(path)

    def absolute_path(self, path: str) -> str:
        return str(Path(path).absolute())

    def folder_problem(self, path: str) -> Problem | None:
        return folder_problem(self, path)

    def volume(self, path: str) -> Volume:
        found = shutil.disk_usage(path)
        return Volume(found.total, found.free)

    def max_open_files(self) -> int | None:
        return limits.open_files()
