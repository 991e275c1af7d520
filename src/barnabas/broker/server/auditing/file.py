"""Writes the audit log's file: JSON lines, rotated by size. Only the audit log's thread may use it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from barnabas.base.environment.clock import utc_text
from barnabas.base.environment.filesystem import File, FileSystem, Lock
from barnabas.base.errors import ConfigError


class AuditFile:
    """Appends entries to a file, one line for each. Rotation keeps a few older files::

        audit.log, audit.log.1, audit.log.2 ...     the newest first

    After a crash the last line can be incomplete. The next open ends this line, which is then not valid JSON.
    The file is fsynced when it is closed or rotated.

    Args:
        fs: file system of the file.
        path: path of the current file; its folder must exist.
        max_bytes: size in bytes from which the file is rotated.
        kept: number of older files to keep.

    Raises:
        ConfigError: the file cannot be written, or another broker writes it.
    """

    def __init__(self, fs: FileSystem, path: str, max_bytes: int, kept: int) -> None:
        self._fs = fs
        self._path = fs.absolute_path(path)
        self._max_bytes = max_bytes
        self._kept = kept
        self._is_open = False
        try:
            self._open()
        except BlockingIOError:
            raise ConfigError(
                f"barnabas.audit.file={path} is written by another broker: give each its own"
            ) from None
        except OSError as error:
            raise ConfigError(f"barnabas.audit.file={path} cannot be written: {error.strerror}") from None

    def append(self, entries: Iterable[dict[str, Any]]) -> None:
        """Write entries to the file, and rotate the file first if it would become too large.

        Raises:
            OSError: the file cannot be written; the file then has none of the entries.
        """
        data = b"".join(map(_line, entries))
        if not self._is_open:
            self._open()
        if self._size and self._size + len(data) > self._max_bytes:
            self._rotate()
        try:
            self._file.write_at([data], self._size)
        except OSError:
            with suppress(OSError):
                self._file.truncate(self._size)
            raise
        self._size += len(data)

    def close(self) -> None:
        """Fsync and close the file. A second call does nothing."""
        if not self._is_open:
            return
        self._is_open = False
        with suppress(OSError):
            self._file.sync()
        self._file.close()
        self._lock.release()

    def _open(self) -> None:
        self._lock: Lock = self._fs.lock(self._path)
        try:
            self._file: File = self._fs.open(self._path, create=True)
        except OSError:
            self._lock.release()
            raise
        folder, _, name = self._path.rpartition("/")
        self._size = next(entry.size for entry in self._fs.entries(folder or "/") if entry.name == name)
        if self._size and self._file.read_at(1, self._size - 1) != b"\n":
            self._file.write_at([b"\n"], self._size)
            self._size += 1
        self._is_open = True

    def _rotate(self) -> None:
        self.close()
        try:
            if not self._kept:
                self._fs.remove(self._path)
            for number in range(self._kept, 0, -1):
                older = self._path if number == 1 else f"{self._path}.{number - 1}"
                with suppress(FileNotFoundError):
                    self._fs.rename(older, f"{self._path}.{number}")
        finally:
            self._open()


def _line(entry: dict[str, Any]) -> bytes:
    text = json.dumps({**entry, "time": utc_text(entry["time"])}, ensure_ascii=False)
    # half of a pair of surrogates has no UTF-8
    return text.encode("utf-8", "backslashreplace") + b"\n"
