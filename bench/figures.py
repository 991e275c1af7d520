"""The figures that a driver prints: one number for each unit."""

from __future__ import annotations

Figures = dict[str, float]


def percentiles_ms(seconds: list[float]) -> Figures:
    """The median and the 99th percentile, in milliseconds."""
    ordered = sorted(seconds)
    return {
        f"p{percent} ms": ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] * 1e3
        for percent in (50, 99)
    }
