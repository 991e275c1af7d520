"""The start of a share group in a partition that it has not read yet (``share.auto.offset.reset``)."""

from __future__ import annotations

import re

#: the timestamps of ListOffsets that stand for the end and for the start of a log
LATEST, EARLIEST = -1, -2

#: a duration as Java's `Duration.parse` reads it, without signs
_DURATION = (
    r"P(?=[0-9T])(?:([0-9]{1,9})D)?"
    r"(?:T(?=[0-9])(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9})(?:\.([0-9]{1,9}))?S)?)?"
)
PATTERN = f"latest|earliest|by_duration:{_DURATION}"
_UNITS_MS = (86_400_000, 3_600_000, 60_000, 1000)


def start_timestamp(reset: str, now_ms: int) -> int:
    """Return the timestamp with which ListOffsets finds the first record that a share group receives.

    The result is `LATEST`, `EARLIEST`, or a time in milliseconds since 1970.

    Args:
        reset: a value of ``share.auto.offset.reset`` that matches `PATTERN`.
        now_ms: the present time, in milliseconds since 1970.
    """
    if reset in ("latest", "earliest"):
        return LATEST if reset == "latest" else EARLIEST
    found = re.fullmatch(_DURATION, reset.removeprefix("by_duration:"))
    assert found is not None, reset
    *numbers, fraction = found.groups()
    duration_ms = sum(int(number or 0) * unit for number, unit in zip(numbers, _UNITS_MS, strict=True))
    return max(0, now_ms - duration_ms - int((fraction or "0").ljust(3, "0")[:3]))
