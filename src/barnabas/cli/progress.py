"""Prints a line of progress on stderr, if it is a terminal."""

from __future__ import annotations

import os
import stat
import sys
import time
from typing import Self

_INTERVAL = 0.2


class Counter:
    """Counts records and bytes. If `shown` is true, it prints the counts on stderr a few times a second.

    If `total_bytes` is not 0, it also prints which percentage of these bytes is counted.
    """

    def __init__(self, verb: str, *, shown: bool, total_bytes: int = 0) -> None:
        self.records = 0
        self.bytes = 0
        self._verb = verb
        self._shown = shown
        self._total = total_bytes
        self._began = self._said = time.monotonic()

    def add(self, records: int, size: int) -> None:
        self.records += records
        self.bytes += size
        now = time.monotonic()
        if self._shown and now - self._said >= _INTERVAL:
            self._said = now
            self._say("")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._say("\n")

    def _say(self, end: str) -> None:
        elapsed = max(time.monotonic() - self._began, 0.001)
        share = f"{min(self.bytes / self._total, 1):.0%}  " if self._total else ""
        rate = f"{self.records / elapsed:,.0f} records/s"
        text = f"{self._verb} {self.records:,} records  {human_bytes(self.bytes)}  {share}{rate}"
        print(f"\r\x1b[K{text}", end=end, file=sys.stderr, flush=True)


def human_bytes(size: float) -> str:
    """Return a number of bytes as text: 1.2 MB for 1,234,567."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def is_file(stream: object) -> bool:
    """Whether a stream is a regular file: neither a terminal nor a pipe."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)  # type: ignore[attr-defined]
    except (OSError, ValueError, AttributeError):
        return False
