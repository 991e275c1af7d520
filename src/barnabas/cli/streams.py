"""Makes the standard streams safe: they may be closed, full or without a reader."""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from contextlib import suppress
from typing import IO, TextIO

import click

from barnabas.base.errors import BarnabasError


class InputError(BarnabasError):
    """The input cannot be read, or does not have the format that the options name."""


def prepare_streams() -> None:
    """Make the standard streams of this process safe to use.

    - A closed stream is opened on /dev/null. If it stayed closed, the next file or socket would get its
      descriptor, and receive the output. Later, a write to the closed stdout raises OSError. A write to the
      closed stderr has no effect.
    - Errors of stdout name it. After the first error its descriptor leads to /dev/null, so that buffered
      output does not fail again when Python ends.
    - Characters that cannot be encoded are printed as escapes.
    """
    missing = [number for number in (0, 1, 2) if not _is_open(number)]
    for _ in missing:
        os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    if sys.stdout is not None:
        sys.stdout.flush()
    sys.stdout = _text(_Stdout(1, closed=1 in missing), sys.stdout)
    sys.stderr = _text(_Stderr(2), sys.stderr)


def stdin_bytes() -> IO[bytes]:
    """Return stdin as a stream of bytes.

    Raises:
        InputError: stdin is closed.
    """
    if sys.stdin is None:
        raise InputError("stdin is closed: pipe the input to the command, or name a file with --file")
    return sys.stdin.buffer


def stdout_bytes() -> IO[bytes]:
    """Return stdout as a stream of bytes."""
    return sys.stdout.buffer


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether a stream is a terminal; False for a closed one."""
    with suppress(ValueError):
        return stream is not None and stream.isatty()
    return False


def stdout_has_reader() -> bool:
    """Whether stdout may still have a reader; False if the other end of a pipe is closed."""
    poll = select.poll()
    poll.register(1, 0)  # errors are always reported
    return not poll.poll(0)


def report(text: str) -> None:
    """Report a completed action on stdout. Continue if stdout has no reader any more."""
    with suppress(BrokenPipeError):
        click.echo(text)


class _Stdout(io.FileIO):
    """A stream for descriptor 1 whose errors name stdout."""

    def __init__(self, number: int, *, closed: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self._was_closed = closed

    def write(self, data: object) -> int:
        try:
            if self._was_closed:
                raise OSError(errno.EBADF, "it is closed")
            return super().write(data) or 0  # type: ignore[arg-type]
        except OSError as error:
            error.filename = "stdout"
            self._was_closed = False
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, self.fileno())
            os.close(nothing)
            raise


class _Stderr(io.FileIO):
    """A stream for descriptor 2 that ignores errors, because they could not be reported."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)

    def write(self, data: object) -> int:
        try:
            return super().write(data) or 0  # type: ignore[arg-type]
        except OSError:
            return len(data)  # type: ignore[arg-type]


def _text(raw: io.FileIO, like: TextIO | None) -> io.TextIOWrapper:
    encoding = like.encoding if like is not None else "utf-8"
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding, errors="backslashreplace", line_buffering=raw.isatty()
    )


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
