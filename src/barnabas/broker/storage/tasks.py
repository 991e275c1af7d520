"""Tasks that block on the disk. The owner of a log prepares such a task, and any thread runs it.

A task uses only data that does not change meanwhile: pinned files, prepared content, or files that no longer
belong to a log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from barnabas.base.environment.filesystem import FileSystem, replace_file
from barnabas.base.types import Offset
from barnabas.broker.storage.open_files import LogFile


@dataclass(slots=True)
class Replacement:
    """A task that replaces a small file atomically and durably."""

    fs: FileSystem
    path: str
    content: bytes

    def run(self) -> None:
        """Replace the file. Raises OSError."""
        replace_file(self.fs, self.path, self.content)


@dataclass(slots=True)
class Flush:
    """A task that makes a log durable up to `offset`.

    After it has run, call `PartitionLog.complete_flush`.
    """

    fs: FileSystem
    offset: Offset
    #: `LogFiles.truncation_epoch` when the task was prepared: a truncation changes it
    truncation_epoch: int
    #: pinned files, `small_files` among them
    files: Sequence[LogFile]
    #: files to close afterwards
    small_files: Sequence[LogFile]
    replacements: Sequence[Replacement]
    directories: Sequence[str]
    #: base offsets of the sealed segments covered
    sealed: Sequence[Offset]
    #: removal of files that were renamed to ``.deleted``
    removal: Removal | None = None
    #: whether sealed segments from `offset` on, and the active one, are left to the next flush
    is_partial: bool = False
    #: the log's last stable offset when the task was prepared
    stable_offset: Offset = 0
    #: the error of `run` or `sync_files`; None if there was none
    error: Exception | None = None
    #: whether the error is that of an fsync: the data may be lost
    is_lost: bool = False
    #: files that no thread has begun to fsync
    _left: Iterator[LogFile] = field(init=False)

    def __post_init__(self) -> None:
        self._left = iter(self.files)

    def sync_files(self) -> None:
        """Fsync files that no other thread has begun to fsync. Several threads can call it at once.

        A call before `run` saves time, but is not necessary: a file system combines fsyncs that arrive
        together into one commit. An error is not raised: `error` keeps it.
        """
        try:
            for file in self._left:
                file.sync()
        except Exception as error:
            self.error = error
            self.is_lost = True

    def run(self) -> None:
        """Make the data durable. An error is not raised: `error` keeps it for `complete_flush`."""
        if self.error is not None:
            return
        try:
            for replacement in self.replacements:
                replacement.run()
            self.is_lost = True
            for file in self._left:
                file.sync()
            for directory in self.directories:
                self.fs.sync_directory(directory)
            self.is_lost = False
            if self.removal is not None:
                with suppress(OSError):  # the next start removes them by their suffix
                    self.removal.run()
        except Exception as error:
            self.error = error


@dataclass(slots=True)
class Removal:
    """A task that removes files that no log uses any more."""

    files: Sequence[LogFile]

    def run(self) -> None:
        """Remove the files.

        If some cannot be removed, remove the others, then raise the last OSError.
        """
        failure = None
        for file in self.files:
            try:
                file.remove()
            except OSError as error:
                failure = error
        if failure is not None:
            raise failure


@dataclass(slots=True)
class TreeRemoval:
    """A task that removes the folder of a deleted partition."""

    fs: FileSystem
    path: str

    def run(self) -> None:
        """Remove the folder, if it exists. Raises OSError."""
        try:
            self.fs.remove_tree(self.path)
        except FileNotFoundError:
            return
