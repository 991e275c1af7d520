"""Follows a log file through growth, rotation (by rename, or by copy and truncate) and restarts.

A file is recognised by its content, not only by its inode: a `Position` has a checksum of the last bytes
before it. If those bytes are still there, it is the same file. If not, the file was truncated or replaced.
Then the file that still has them (a rotated one, perhaps compressed) is read to its end first. One case
cannot be detected: a file that was copied and truncated before any of its lines was read.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from barnabas.base.system.files import pread, shared_opener

#: The suffixes of log rotation: .1, .2.gz, -20240131, .2024-01-31, .old ...
_ROTATED_SUFFIX = re.compile(r"[.\-_](?:(\d[\d\-_T.]*?)|old|bak|prev)(?:\.gz)?")

#: A longer line is returned in pieces, so that memory stays bounded.
MAX_LINE = 64 * 1024

#: The bytes checked before a position: a few lines, since one alone may not be unique.
_CHECK_BYTES = 1024
_CHUNK = 256 * 1024


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a file, after a line.

    `offset` is in bytes of the uncompressed file. `check` is the CRC-32 of the `check_size` bytes before it.
    """

    inode: int
    offset: int
    check_size: int
    check: int

    def encode(self) -> str:
        return f"{self.inode}:{self.offset}:{self.check_size}:{self.check:08x}"

    @classmethod
    def decode(cls, text: str) -> Position:
        """Return the position that `encode` has converted to `text`. Raises ValueError for any other text."""
        inode, offset, check_size, check = text.split(":")
        return cls(int(inode), int(offset), int(check_size), int(check, 16))


def is_rotated_name(path: Path, base: Path) -> bool:
    """Whether `path` has the name of a rotated file of `base`."""
    return (
        path.parent == base.parent
        and path.name.startswith(base.name)
        and _ROTATED_SUFFIX.fullmatch(path.name, len(base.name)) is not None
    )


class FileTail:
    """Reads the lines of a log file in the order in which they were written, from a position on.

    Args:
        path: path of the file. After a rotation, another file has this path.
        position: `position` of an earlier `FileTail`, from which to continue. If None, begin with the oldest
            file of `history`. If there is no `history` either, begin with the present file at `path`.
        since_ns: time at which the position was reached, in ns since the epoch. If the position's file no
            longer exists, rotated files that were written after this time are read.
        history: rotated files to read before the file itself; used only if `position` is None.
        grace_polls: after a file is renamed, a writer may still have it open. The file counts as complete
            after this number of calls of `next_line` that find nothing new in it.
    """

    def __init__(
        self,
        path: Path,
        position: Position | None = None,
        *,
        since_ns: int = 0,
        history: tuple[Path, ...] = (),
        grace_polls: int = 5,
    ) -> None:
        self.path = path
        #: reasons why lines may be missing: a file vanished, was truncated or is damaged before its end
        self.warnings: list[str] = []
        self._grace_polls = grace_polls
        self._quiet_polls = 0
        self._file: IO[bytes] | None = None
        self._inode = 0
        self._offset = 0  # behind the last line given out
        self._before = b""  # the bytes before `_offset` that identify the file
        self._last_end: Position | None = None  # of the last finished file that was not empty
        self._damage: Exception | None = None  # where reading of a compressed file stopped
        self._ready: deque[bytes] = deque()
        self._partial = b""  # read, but its newline is not there yet
        if position is not None:
            self._resume(position, since_ns)
        elif history:
            self._open(min(history, key=self._age))
        else:
            self._open(path)  # now, so that a rotation before the first look is noticed

    @property
    def position(self) -> Position:
        """Return the position after the last line that `next_line` returned."""
        return Position(self._inode, self._offset, len(self._before), zlib.crc32(self._before))

    @property
    def unread(self) -> int:
        """Return the number of bytes that `next_line` has not returned yet; 0 if the file is compressed."""
        if self._file is None:
            return _size(self.path)
        if _is_gzip(self._file):
            return 0
        return max(os.fstat(self._file.fileno()).st_size - self._offset, 0)

    def next_line(self, *, final: bool = False) -> bytes | None:
        """Return the next line with its line end; None if there is none now. `position` moves after the line.

        A last line without a newline is returned only if `final` is true, or if the file has been rotated.
        Lines longer than `MAX_LINE` are returned in pieces.
        """
        while not self._ready:
            if self._file is None and not self._open(self.path):
                return None
            if self._was_truncated():
                self._leave_truncated()
                continue
            if self._fill():
                self._quiet_polls = 0
                continue
            if not self._is_current():
                self._quiet_polls += 1
                if self._quiet_polls <= self._grace_polls and not final:
                    return None
                if not self._partial:
                    self._open_successor()
                    continue
            elif not (final and self._partial):
                return None
            self._ready.append(self._partial)
            self._partial = b""
        line = self._ready.popleft()
        self._offset += len(line)
        self._before = (self._before + line)[-_CHECK_BYTES:]
        return line

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _fill(self) -> bool:
        """Read the next bytes of the file. Return whether `next_line` has a line to return."""
        chunk = self._read_chunk()
        if not chunk:
            return False
        *lines, rest = (self._partial + chunk).split(b"\n")
        self._ready.extend(line + b"\n" for line in lines)
        if len(rest) > MAX_LINE:
            self._ready.append(rest)
            rest = b""
        self._partial = rest
        return bool(self._ready) or self._fill()

    def _read_chunk(self) -> bytes:
        """Return the next bytes of the file; b"" at its end, or where a compressed file is damaged."""
        file = self._file
        if not isinstance(file, gzip.GzipFile):
            assert file is not None
            return file.read(_CHUNK)
        if self._damage is not None and not isinstance(self._damage, EOFError):
            return b""
        try:
            chunk = file.read1(_CHUNK)  # `read` would lose the bytes before the damage
            self._damage = None
        except EOFError as error:  # a .gz that is still being written, or that was cut off
            self._damage = error
            return b""
        except (gzip.BadGzipFile, zlib.error) as error:
            self._damage = error
            self._warn_of_damage()
            return b""
        return chunk

    def _warn_of_damage(self) -> None:
        assert self._file is not None
        self.warnings.append(
            f"{self._file.name}: damaged after byte {self._offset + len(self._partial)} of the uncompressed "
            f"file ({self._damage}); the lines after it are missing"
        )

    def _was_truncated(self) -> bool:
        """Whether bytes that were read from the open file are no longer in it."""
        assert self._file is not None
        if _is_gzip(self._file):
            return False
        read_to = self._offset + len(self._partial)
        expected = (self._before + self._partial)[-_CHECK_BYTES:]
        return pread(self._file.fileno(), len(expected), read_to - len(expected)) != expected

    def _is_current(self) -> bool:
        """Whether the open file still has the name `path`.

        If no file has this name at the moment, return whether the open file is the newest of the rotated
        files.
        """
        try:
            return self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            return self._successor() is None

    # -- moving from file to file

    def _open(self, path: Path, offset: int = 0, before: bytes = b"") -> bool:
        try:
            file = _open_log(path)
        except FileNotFoundError:
            return False
        self.close()
        if offset:
            file.seek(offset)
        self._file, self._inode = file, os.fstat(file.fileno()).st_ino
        self._offset, self._before, self._partial = offset, before, b""
        self._damage = None
        self._quiet_polls = 0
        return True

    def _open_successor(self) -> None:
        if isinstance(self._damage, EOFError):
            self._warn_of_damage()
        following = self._successor()
        if self._offset:
            self._last_end = self.position
        self.close()
        self._open(following if following is not None else self.path)

    def _successor(self) -> Path | None:
        """Return the file that was written after the open one; None if there is none.

        There may have been several rotations, and the open file may have been renamed, copied or deleted.
        """
        family = self._family()
        for is_finished in (self._has_inode, self._is_copy):
            for index, path in enumerate(family):
                if is_finished(path):
                    return next(iter(family[index + 1 :]), None)
        written = os.fstat(self._file.fileno()).st_mtime_ns if self._file is not None else 0
        return self._first_written_after(written)

    def _has_inode(self, path: Path) -> bool:
        return _inode(path) == self._inode

    def _is_copy(self, path: Path) -> bool:
        """Whether a file, perhaps compressed, has what was read from the open file, and nothing after it."""
        end = self.position if self._offset else self._last_end  # an empty file is like any other
        return end is not None and _bytes_before(path, end, at_end=True) is not None

    def _first_written_after(self, time_ns: int) -> Path | None:
        return next((path for path in self._family() if _mtime(path) > time_ns), None)

    def _family(self) -> list[Path]:
        """Return the file and its rotated files, the oldest first."""
        paths = {path for path in self.path.parent.iterdir() if is_rotated_name(path, self.path)}
        # While a rotation is being compressed, both forms are there.
        paths = {path for path in paths if path.suffix != ".gz" or path.with_suffix("") not in paths}
        if self.path.exists():
            paths.add(self.path)
        return sorted(paths, key=self._age)

    def _age(self, path: Path) -> tuple[int, int, str]:
        """Return the sort key that orders rotated files from the oldest to the newest.

        Names with dates come first, by date. Then come names with numbers: .2 before .1. The file `path` is
        the last.
        """
        suffix = _ROTATED_SUFFIX.fullmatch(path.name, len(self.path.name))
        if suffix is None:
            return (1, 0, "")
        stamp = suffix[1] or ""
        if stamp.isdecimal() and len(stamp) < 5:
            return (0, -int(stamp), "")
        return (0, -1_000_000, stamp)

    def _resume(self, position: Position, since_ns: int) -> None:
        """Open the file that contains the position, which may have another name now.

        If no file has it, open the first file that was written after `since_ns`, and add a warning.
        """
        if self._open_holder(position):
            return
        if position.offset:
            self.warnings.append(
                f"{self.path}: the file that was read up to byte {position.offset} is gone; lines written "
                "to it since may be missing"
            )
        following = self._first_written_after(since_ns)
        if following is not None:
            self._open(following)

    def _leave_truncated(self) -> None:
        """Continue in the copy of the file's old content, or at the file's start if there is no copy.

        After the end of the copy, `next_line` continues at the file's start. Without a copy, lines may be
        missing, and `warnings` gets a text about it.
        """
        truncated_at = self._offset
        if truncated_at and self._open_holder(self.position):
            return
        if truncated_at:
            self.warnings.append(
                f"{self.path}: truncated after byte {truncated_at} was read, with no copy beside it; "
                "lines written just before may be missing"
            )
        self.close()
        self._open(self.path)

    def _open_holder(self, position: Position) -> bool:
        """Open the file whose bytes before the position have the position's checksum, and go to the position.

        For offset 0, it is the file with the position's inode. Return whether there is such a file.
        """
        family = self._family()
        family.sort(key=lambda path: _inode(path) != position.inode)
        for path in family:
            if position.offset == 0:
                before = b"" if _inode(path) == position.inode else None
            else:
                before = _bytes_before(path, position)
            if before is not None and self._open(path, position.offset, before):
                return True
        return False


def _bytes_before(path: Path, position: Position, *, at_end: bool = False) -> bytes | None:
    """Return the last `position.check_size` bytes before `position.offset`, if their CRC is `position.check`.

    Return None if the CRC differs, or if the file is too short or cannot be read. If `at_end` is true, also
    return None if the file goes on after `position.offset`.
    """
    try:
        with _open_log(path) as file:
            file.seek(position.offset - position.check_size)
            data = file.read(position.check_size + at_end)  # a damaged .gz may have no next byte
    except (OSError, EOFError, zlib.error):  # zlib.error: a damaged .gz
        return None
    before = data[: position.check_size]
    if len(before) < position.check_size or zlib.crc32(before) != position.check:
        return None
    return None if at_end and len(data) > position.check_size else before


def _open_log(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path))
    return cast(IO[bytes], open(path, "rb", buffering=0, opener=shared_opener))


def _is_gzip(file: object) -> bool:
    return isinstance(file, gzip.GzipFile)


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:  # rotated on since the listing
        return -1


def _mtime(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return -1


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
