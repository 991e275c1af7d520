"""Decides what an error on a log's files affects: the request, the log, or the log directory.

No other module decides that.

| error | harm |
|---|---|
| the disk or its file system has failed (EIO, EROFS, ENODEV, EUCLEAN, EBADMSG, ...) | DIRECTORY |
| an fsync has failed; a change stopped half-way and could not be undone; a bug of ours | LOG |
| all else (ENOSPC, EMFILE, ENOMEM, ENOENT, EACCES, EFBIG, EINVAL, ...) | REQUEST |

- REQUEST: the broker rejects this operation, which has changed nothing. The next one may succeed, for example
  when there is space or memory again.
- LOG: the log's files differ from memory, or may not reach the disk. The log accepts no more writes until the
  next start, which recovers it. Reads continue where possible.
- DIRECTORY: no write to any of its logs is reliable. It accepts no more writes until the next start.

A failed fsync harms the log whatever the error is, because the page cache may show data that the disk has
lost.
"""

from __future__ import annotations

import errno
from enum import IntEnum


class Harm(IntEnum):
    """The scope of an error's harm, in ascending order."""

    REQUEST = 0
    LOG = 1
    DIRECTORY = 2


def _numbers(*names: str) -> frozenset[int]:
    # not every system knows every name
    return frozenset(getattr(errno, name) for name in names if hasattr(errno, name))


#: the disk, its file system or the way to it is broken
_BROKEN = _numbers(
    "EIO", "EROFS", "ENODEV", "EUCLEAN", "EBADMSG", "EBADE",
    "EREMOTEIO", "ENOMEDIUM", "EMEDIUMTYPE", "ENOTCONN", "ESHUTDOWN", "ENOLINK", "ETIMEDOUT", "EHWPOISON",
)  # fmt: skip
#: an fsync cannot fail for these: the file or folder could not even be opened for it
_NOT_OPENED = _numbers("EMFILE", "ENFILE")

#: what was lacking may be there the next time: space, memory, files that may be open
_PASSING = _numbers("ENOSPC", "EDQUOT", "EMFILE", "ENFILE", "ENOMEM", "EAGAIN")

#: the one file is to blame, no other of its disk: of the operations that harm no more than themselves
_ONE_FILE = _numbers("EACCES", "EPERM", "EISDIR", "ENOTDIR", "ELOOP", "ENOENT", "ENXIO")

_HINTS = {
    errno.ENOSPC: "free some space on its disk",
    errno.EDQUOT: "raise the disk quota of the broker's user, or free some space",
    errno.EACCES: "let the broker's user read and write it",
    errno.EPERM: "let the broker's user read and write it",
    errno.EROFS: "mount its file system for writing",
    errno.EMFILE: "allow the broker more open files (ulimit -n)",
    errno.ENFILE: "allow the system more open files (fs.file-max)",
    errno.ENOTDIR: "choose a folder in log.dirs",
    errno.EEXIST: "choose a folder in log.dirs",
}


class TornError(OSError):
    """A change of files stopped in the middle and could not be undone.

    The files may differ from the state in memory until the next start reads them. `what` describes the
    failure, for the message, and `cause` is the error of the disk.
    """

    def __init__(self, what: str, cause: OSError) -> None:
        super().__init__(cause.errno, f"{what}: {cause}")


def harm_of(error: BaseException, *, syncing: bool = False) -> Harm:
    """Return the scope of the harm of `error`: the request, the log or the log directory.

    Args:
        error: an OSError; any other exception counts as a bug, which harms the log.
        syncing: whether an fsync of the log's own files has failed.
    """
    if not isinstance(error, OSError):
        return Harm.LOG
    if error.errno in _BROKEN:
        return Harm.DIRECTORY
    if isinstance(error, TornError) or (syncing and error.errno not in _NOT_OPENED):
        return Harm.LOG
    return Harm.REQUEST


def is_about_one_file(error: OSError) -> bool:
    """Whether `error` of a read concerns this file alone, not its disk. A retry would not help."""
    return error.errno in _ONE_FILE


def may_pass(error: BaseException | None) -> bool:
    """Whether an operation that failed with `error` may succeed later, when resources are free again."""
    return isinstance(error, OSError) and error.errno in _PASSING


def is_busy(error: BaseException | None) -> bool:
    """Whether an operation failed only because another one must end first. A retry succeeds soon."""
    return isinstance(error, OSError) and error.errno == errno.EAGAIN


def hint_of(error: OSError) -> str:
    """Return advice for the operator, to append to an error message; empty if there is none."""
    hint = _HINTS.get(error.errno or 0)
    return f": {hint}" if hint else ""
