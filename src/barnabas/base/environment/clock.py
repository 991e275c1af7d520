"""Wall time behind an interface, so that a test or a simulation can provide its own.

Timers are the event loop's `call_later`, which a virtual-time loop (`simulation.virtual_time`) runs
without waiting.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """A source of wall time and of monotonic time."""

    def now_ms(self) -> int:
        """Return the milliseconds since the Unix epoch. The clock may be set back."""
        ...

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary moment, to measure durations."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    #: not a method, because every request reads it
    monotonic = staticmethod(time.perf_counter)


def utc_text(now_ms: int) -> str:
    """Return a time of `Clock.now_ms` in RFC 3339's format: ``2026-11-22T21:03:12.481Z``."""
    return (
        datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
