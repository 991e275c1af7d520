"""A disk of limited size for the broker's data. The soak can fill it and free it again."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

SIZE = 512 * 1024 * 1024
_BALLAST = "ballast"


class NoDiskError(Exception):
    """The system does not allow a mount; the text is the reason, in one line."""


class LimitedDisk:
    """A file system in memory, mounted at `folder`. Its contents survive the end of a process, but not of the
    machine.
    """

    def __init__(self, folder: Path, size: int = SIZE) -> None:
        """Mount the file system.

        Raises:
            NoDiskError: this system or user cannot mount it.
        """
        self.folder = folder
        folder.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "soak", str(folder)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise NoDiskError(str(error)) from error
        if done.returncode != 0:
            raise NoDiskError(done.stderr.strip())

    def fill(self, left: int) -> None:
        """Fill the disk, except for at most `left` bytes."""
        ballast = os.open(self.folder / _BALLAST, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            while (size := self._free() - left) > 0:
                try:
                    os.posix_fallocate(ballast, os.fstat(ballast).st_size, size)
                except OSError as error:  # the broker has been faster
                    if error.errno != errno.ENOSPC:
                        raise
        finally:
            os.close(ballast)

    def free(self) -> None:
        (self.folder / _BALLAST).unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount the disk, and put a copy of its contents into the folder."""
        self.free()
        kept = self.folder.with_name(self.folder.name + "-kept")
        shutil.copytree(self.folder, kept)
        unmount(self.folder)
        self.folder.rmdir()
        kept.rename(self.folder)

    def _free(self) -> int:
        status = os.statvfs(self.folder)
        return status.f_bavail * status.f_frsize


def unmount(folder: Path) -> None:
    """Unmount the file system at `folder`, if there is one. A soak that was killed can have left it."""
    if folder.is_mount():
        subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)
