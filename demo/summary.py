"""Prints the summary of the demo."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from demo import LOG_TOPICS, PIPELINE, STATS_TOPIC
from demo.bursts import Burst
from demo.failover import Failover
from demo.folder import shorten
from demo.plot import plot_over_time
from demo.report import GROUP, Count, Totals
from demo.windows import describe

_LEVELS = ("FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE", "UNKNOWN")
_BURSTS_SHOWN = 5


@dataclass(frozen=True)
class Result:
    """All results of the demo."""

    totals: list[Totals]
    counts: list[Count]
    bursts: list[Burst]
    window: timedelta
    seconds: float
    failover: Failover | None = None

    @property
    def agree(self) -> bool:
        return all(total.agree for total in self.totals)


def print_summary(console: Console, result: Result, folder: Path) -> None:
    console.print()
    console.print(_totals_table(result))
    if result.agree:
        verdict = "[bold green]The totals agree:[/] shipped = stored = in Parquet = sum of the counts"
    else:
        verdict = "[bold red]The totals do not agree.[/]"
    joined = sum(total.lines - total.shipped for total in result.totals)
    if joined:
        verdict += f"; {joined:,} lines are blank or go on with the record before them, as a stack trace does"
    console.print(f"{verdict}.\n", highlight=False, soft_wrap=True)
    if result.failover is not None:
        console.print(f"{_failover(result.failover)}\n", highlight=False, soft_wrap=True)
    console.print(_levels_table(result.counts))
    _print_bursts(console, result)
    if result.counts:
        drawn = plot_over_time(result.counts, result.window, min(console.width, 100))
        console.print(Text(drawn))
    _print_whereabouts(console, result, folder)


def _failover(failover: Failover) -> str:
    return (
        f"[bold]Broker {failover.broker} was killed half way[/], the leader of {failover.partitions} "
        f"partitions: the longest that a write had to wait is {failover.longest_wait:.1f} s (usually "
        f"{failover.usual_wait * 1000:.0f} ms), and from a write to its read it took "
        f"{failover.longest_read:.1f} s at most (usually {failover.usual_read * 1000:.0f} ms); "
        f"all {failover.writes:,} writes were acknowledged, and read back once each, in order."
    )


def _totals_table(result: Result) -> Table:
    table = Table(title="Records at each station", title_justify="left")
    table.add_column("topic")
    for name in ("files", "lines", "shipped", "stored", "Parquet", STATS_TOPIC):
        table.add_column(name, justify="right")
    rows = [(t.topic, t.files, t.lines, t.shipped, t.stored, t.parquet, t.counted) for t in result.totals]
    for topic, *numbers in rows:
        table.add_row(topic, *(f"{number:,}" for number in numbers))
    sums = [sum(row[column] for row in rows) for column in range(1, 7)]  # type: ignore[misc]
    table.add_section()
    table.add_row("all", *(f"{number:,}" for number in sums), style="bold")
    return table


def _levels_table(counts: list[Count]) -> Table:
    by_level: Counter[tuple[str, str]] = Counter()
    for count in counts:
        by_level[count.topic, count.level] += count.records
    levels = [level for level in _LEVELS if any(by_level[topic, level] for topic in LOG_TOPICS)]
    table = Table(title="By level", title_justify="left")
    table.add_column("topic")
    for level in levels:
        table.add_column(level, justify="right")
    for topic in LOG_TOPICS:
        table.add_row(topic, *(f"{by_level[topic, level]:,}" for level in levels))
    return table


def _print_bursts(console: Console, result: Result) -> None:
    console.print(f"\nBursts of errors, in windows of {describe(result.window)}", highlight=False)
    if not result.bursts:
        console.print("  none: no window stands out")
    for burst in result.bursts[:_BURSTS_SHOWN]:
        message = burst.sample.splitlines()[0] if burst.sample else ""
        line = (
            f"  [red]{burst.errors:>6,} errors[/] in {burst.topic} from {burst.start:%d %b %Y %H:%M} "
            f"to {burst.end:%d %b %Y %H:%M} (usual in a window: {burst.usual:.1f})"
        )
        console.print(line, highlight=False, soft_wrap=True)
        console.print(f"         [dim]{escape(message[:100])}[/]", highlight=False, soft_wrap=True)
    if len(result.bursts) > _BURSTS_SHOWN:
        console.print(f"  and {len(result.bursts) - _BURSTS_SHOWN} more")
    console.print()


def _print_whereabouts(console: Console, result: Result, folder: Path) -> None:
    data, records, broker_log, spark_log = (
        shorten(folder / name) for name in ("broker", "records", "broker.log", "spark.log")
    )
    command = shorten(Path(sys.executable).with_name("barnabas"))
    again = "start" if result.failover is None else "cluster start --listen 127.0.0.1:9092"
    lines = [
        "",
        "Where it lies",
        f"  {data:<18} the topics, in Apache Kafka's own format",
        f"  {records:<18} every record, as Parquet",
        f"  {broker_log}, {spark_log}  what the broker and Spark had to say",
        "What to try next",
        f"  {command} pipeline status {shorten(PIPELINE)} --folder {shorten(folder)}",
        f"  {command} {again} --data {data}    # the same again; then, beside it:",
        f"  {command} consume {STATS_TOPIC} --from-beginning",
        f"  {command} groups describe {GROUP}",
        "  make demo FILES='a.log b.log'    # with files of your own",
        f"Took {result.seconds:.0f} s.",
    ]
    console.print("\n".join(lines), highlight=False, soft_wrap=True)
