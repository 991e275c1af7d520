"""The figures that a driver prints: one number for each unit."""

from __future__ import annotations

import struct

Figures = dict[str, float]
#: what a stamped record's value begins with: nanoseconds of the monotonic clock
STAMP = struct.Struct(">q")


def percentiles_ms(seconds: list[float]) -> Figures:
    """Return the median and the 99th percentile of times in seconds, in milliseconds."""
    ordered = sorted(seconds)
    return {
        f"p{percent} ms": ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] * 1e3
        for percent in (50, 99)
    }
