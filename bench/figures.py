"""Types and settings of drivers and workloads: figures (a number for each unit), and TLS settings."""

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


def tls_settings(ca: str | None) -> dict[str, str]:
    """Return librdkafka's settings for TLS, with certificates of the authority in file `ca`; {} if None."""
    return {} if ca is None else {"security.protocol": "ssl", "ssl.ca.location": ca}
