"""Converts the timestamps in log files to ISO 8601.

The result has a time zone only if the line has one, because a guess would often be wrong.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

from barnabas.base.environment.clock import SystemClock

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = rf"(?P<month>{'|'.join(MONTHS)})"
_TIME = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
_ZONE = r"(?: ?(?P<zone>Z|UTC|GMT|[+-]\d\d:?\d\d)\b)?"

#: The forms of timestamps, the most frequent first, with the programs that write them.
_FORMS = tuple(
    re.compile(form)
    for form in (
        # ISO 8601 and its kin: log4j, Python, PostgreSQL, nginx errors, dpkg
        rf"(?P<year>\d{{4}})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T ]{_TIME}{_ZONE}",
        # syslog (RFC 3164): no year
        rf"{_MONTH} {{1,2}}(?P<day>\d\d?) {_TIME}",
        # ctime: Apache's error log
        rf"\w{{3}} {_MONTH} {{1,2}}(?P<day>\d\d?) {_TIME} (?P<year>\d{{4}})",
        # access logs
        rf"(?P<day>\d\d)/{_MONTH}/(?P<year>\d{{4}}):{_TIME}{_ZONE}",
        # Spark: yy/MM/dd
        rf"(?P<year>\d\d)/(?P<month>\d\d)/(?P<day>\d\d) {_TIME}",
        # Hadoop: yyMMdd HHmmss, and older MySQL: yyMMdd HH:mm:ss
        r"(?P<year>\d\d)(?P<month>[01]\d)(?P<day>[0-3]\d) "
        r"(?P<hour>[012]\d):?(?P<minute>\d\d):?(?P<second>\d\d)(?=\s)",
        # Redis, Tomcat
        rf"(?P<day>\d\d)[ -]{_MONTH}[ -](?P<year>\d{{4}}) {_TIME}",
    )
)


def parse_timestamp(text: str, start: int = 0) -> tuple[str, int] | None:
    """Return the timestamp at `start` of a log line, converted to ISO 8601, and the position after it.

    For example, ``10/Oct/2025:13:55:36 +0200`` becomes ``2025-10-10T13:55:36+02:00``. The result has a time
    zone only if the text has one. Return None if no timestamp of a known form begins at `start`, or if the
    timestamp is not a real date.
    """
    for form in _FORMS:
        match = form.match(text, start)
        if match is not None:
            iso = _iso(match.groupdict())
            return (iso, match.end()) if iso is not None else None
    return None


def starts_with_timestamp(text: str, start: int = 0) -> bool:
    """Whether the text at `start` has the form of a timestamp. It may not be a real date."""
    return any(form.match(text, start) is not None for form in _FORMS)


def iso_timestamp(value: object) -> str | None:
    """Convert `value`, the timestamp field of a structured log line (such as JSON), to ISO 8601.

    Return None if `value` is no timestamp. A timestamp is a text, or a number of seconds, milliseconds,
    microseconds or nanoseconds since 1970. The number may also be a text, and MongoDB's ``{"$date": ...}``
    may contain the value. A number that would be a time before 1973 is no timestamp.
    """
    if isinstance(value, dict):  # MongoDB's {"$date": ...}
        value = value.get("$date")
    if isinstance(value, str):
        taken = parse_timestamp(value.strip())
        if taken is not None:
            return taken[0]
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    seconds = float(value)
    if not math.isfinite(seconds):
        return None
    while seconds > 1e11:  # the year 5138 in seconds: a finer unit, then
        seconds /= 1000
    if seconds < 1e8:  # before 1973: a counter, not a time
        return None
    return _utc(seconds)


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _iso(parts: dict[str, str | None]) -> str | None:
    month = parts["month"] or ""
    number = MONTHS.index(month) + 1 if month in MONTHS else int(month)
    year = parts.get("year")
    try:
        moment = datetime(
            _full_year(int(year)) if year else 2000,  # a leap year, so that 29 February parses
            number,
            int(parts["day"] or 0),
            int(parts["hour"] or 0),
            int(parts["minute"] or 0),
            min(int(parts["second"] or 0), 59),  # a leap second is not one datetime knows
        )
    except ValueError:
        return None
    if not year:
        moment = _latest_past_year(moment)
    fraction = parts.get("fraction")
    zone = parts.get("zone") or ""
    if zone in ("UTC", "GMT", "Z"):
        zone = "Z"
    elif zone and ":" not in zone:
        zone = f"{zone[:3]}:{zone[3:]}"
    return f"{moment.isoformat()}{f'.{fraction}' if fraction else ''}{zone}"


def _full_year(year: int) -> int:
    return year if year > 99 else 2000 + year


def _latest_past_year(moment: datetime) -> datetime:
    """Return `moment` in the latest year in which it is at most a day in the future.

    Syslog omits the year.
    """
    now = datetime.fromtimestamp(SystemClock().now_ms() / 1000)
    for year in (now.year, now.year - 1, now.year - 2, now.year - 3, now.year - 4):
        try:
            dated = moment.replace(year=year)
        except ValueError:  # 29 February
            continue
        if dated <= now + timedelta(days=1):
            return dated
    return moment
