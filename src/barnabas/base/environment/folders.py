"""Checks whether a broker can use a folder for its data, and explains why not."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from barnabas.base.environment.filesystem import FileSystem, Problem, make_durable_directory
from barnabas.base.system import locks
from barnabas.base.system.files import is_read_only, user_id

_LOCK = ".lock"

#: a broker's own files beside the folders of partitions
_OWN_FILES = re.compile(r"\.lock|\.kafka_cleanshutdown|meta\.properties|metadata.*|.*-checkpoint")


def folder_problem(fs: FileSystem, folder: str) -> Problem | None:
    """Return why this process cannot store data in a folder; None if it can.

    Creates a missing folder and its parents. If another broker uses the folder, the problem has `in_use`.
    """
    path = Path(folder)
    try:
        if not make_durable_directory(fs, folder) and not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "")
        denied = _denied_part(path)
        if denied is not None:
            return Problem(explain(denied, PermissionError(errno.EACCES, "")))
        fs.lock(f"{folder}/{_LOCK}").release()
    except BlockingIOError:
        owner = locks.owner(path / _LOCK)
        who = "another broker" if owner is None else f"another broker (process {owner})"
        return Problem(f"{path} is in use by {who}: stop it, or choose another folder", in_use=True)
    except OSError as error:
        return Problem(explain(path, error))
    return None


def explain(path: Path, error: OSError) -> str:
    """Return one line about an error that occurred when a folder was opened: the problem and a hint."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return (
            f"{_nearest(path)}: permission denied for user {_user()}: "
            "give this user the right to read and write there, or choose another folder"
        )
    if error.errno == errno.EROFS:
        return f"{path} is on a read-only file system: choose another folder"
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return f"{_nearest(path)} is a file, not a folder: choose another folder"
    if error.errno == errno.ENOSPC:
        return f"{path} is on a full disk: free some space, or choose another folder"
    if error.errno == errno.EISDIR and error.filename is not None:
        return (
            f"{error.filename} is a folder, not a file: move it away, or choose another folder for the data"
        )
    return f"{path} cannot be used: {error.strerror or error}"


def _denied_part(folder: Path) -> Path | None:
    """Return a path that this process cannot read and write: `folder`, or one of a broker's files in it.

    These files are the lock file, ``meta.properties``, checkpoints and so on, but not the folders of
    partitions. If this process cannot use several files, return the first by name. Return None if it can use
    all of them.

    Raises OSError (EROFS) if the folder is on a read-only file system.
    """
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        if is_read_only(folder):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return folder
    with os.scandir(folder) as entries:
        own = [Path(entry.path) for entry in entries if _OWN_FILES.fullmatch(entry.name)]
    return next((path for path in sorted(own) if not os.access(path, os.R_OK | os.W_OK)), None)


def _user() -> str:
    try:
        import getpass  # imported for this message only: it is slow

        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a user id that has no name
        return user_id()


def _nearest(path: Path) -> Path:
    """Return `path`, or its nearest parent that exists and is visible."""
    return next((each for each in (path, *path.parents) if os.path.lexists(each)), path)
