"""The output of the demo for invented numbers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from demo import APP, DB, INGRESS
from demo.bursts import Burst
from demo.failover import Failover
from demo.plot import plot_over_time
from demo.report import Count, Totals
from demo.summary import Result, print_summary
from rich.console import Console

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def printed(result: Result) -> str:
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    print_summary(console, result, Path("demo"))
    console.file.close()
    return console.export_text()


def result(parquet: int = 12, level: str = "ERROR", bursts: int = 0) -> Result:
    totals = [
        Totals(APP, 1, 15, 12, 12, parquet, 12),
        Totals(INGRESS, 0, 0, 0, 0, 0, 0),
        Totals(DB, 0, 0, 0, 0, 0, 0),
    ]
    counts = [Count(APP, level, BEGAN, 2), Count(APP, "INFO", BEGAN + 3 * MINUTE, 10)]
    burst = Burst(APP, BEGAN, BEGAN + MINUTE, 1200, 0.5, "disk [full]\nat line 7")
    return Result(totals, counts, [burst] * bursts, MINUTE, 12.3)


def test_what_a_failover_meant_for_clients_is_told() -> None:
    killed = Failover(
        broker=2,
        partitions=4,
        longest_wait=3.21,
        usual_wait=0.004,
        writes=1234,
        longest_read=3.62,
        usual_read=0.009,
    )
    text = printed(replace(result(), failover=killed))
    assert "Broker 2 was killed half way, the leader of 4 partitions" in text
    assert "a write had to wait is 3.2 s (usually 4 ms)" in text
    assert "from a write to its read it took 3.6 s at most (usually 9 ms)" in text
    assert "all 1,234 writes were acknowledged, and read back once each, in order." in text


def test_totals_that_agree_are_said_to() -> None:
    text = printed(result())
    assert "The totals agree: shipped = stored = in Parquet = sum of the counts; 3 lines are blank" in text
    assert result().agree


def test_totals_that_differ_are_said_to() -> None:
    assert "The totals do not agree." in printed(result(parquet=11))
    assert not result(parquet=11).agree


def test_bursts_show_when_and_what_and_markup_in_a_message_is_text() -> None:
    text = printed(result(bursts=7))
    assert (
        "1,200 errors in appLogs from 01 Jan 2026 00:00 to 01 Jan 2026 00:01 (usual in a window: 0.5)" in text
    )
    assert "disk [full]\n" in text
    assert "and 2 more" in text


def test_without_bursts_that_is_said() -> None:
    assert "none: no window stands out" in printed(result())


def test_errors_are_drawn_with_the_quiet_windows_between() -> None:
    drawn = plot_over_time(result().counts, MINUTE, 60)
    assert "errors in appLogs, by windows of 1 minute" in drawn
    assert "01 Jan 26 00:02" in drawn


def test_records_are_drawn_where_there_are_no_errors() -> None:
    assert "records in appLogs" in plot_over_time(result(level="INFO").counts, MINUTE, 60)


def test_logs_that_lie_years_apart_are_drawn_side_by_side() -> None:
    counts = [Count(APP, "INFO", BEGAN, 1), Count(APP, "INFO", BEGAN + timedelta(days=4000), 2)]
    drawn = plot_over_time(counts, MINUTE, 60)
    assert "01 Jan 26" in drawn
    assert "14 Dec 36" in drawn
