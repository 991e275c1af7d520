"""Bursts of errors in invented counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow
import pyarrow.dataset
import pytest
from demo import APP, DB
from demo.bursts import find_bursts
from demo.report import Count


def test_windows_of_many_errors_side_by_side_are_one_burst() -> None:
    began, hour = datetime(2026, 3, 1, tzinfo=UTC), timedelta(hours=1)
    errors = {5: 30, 6: 40, 9: 3}  # by window; the others have records, but no errors
    messages = [(window, "ERROR", f"lock {n}") for window in errors for n in range(errors[window])]
    messages += [(6, "FATAL", "odd"), (7, "ERROR", "later"), (6, "INFO", "fine")]
    rows = [
        {"topic": DB, "at": began + window * hour, "level": level, "message": message}
        for window, level, message in messages
    ]
    records = pyarrow.dataset.dataset(pyarrow.Table.from_pylist(rows))
    counts = [Count(DB, "INFO", began + window * hour, 1) for window in range(20)]
    counts += [Count(DB, "ERROR", began + window * hour, n) for window, n in errors.items()]
    counts += [Count(DB, "FATAL", began + 6 * hour, 1)]
    counts += [Count(APP, "ERROR", began + window * hour, 50) for window in range(20)]
    (burst,) = find_bursts(counts, records, hour)
    assert (burst.topic, burst.errors, burst.sample) == (DB, 71, "lock 0")
    assert (burst.start, burst.end) == (began + 5 * hour, began + 7 * hour)
    assert burst.usual == pytest.approx(74 / 20)
