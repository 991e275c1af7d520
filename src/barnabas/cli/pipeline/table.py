"""Prints a pipeline's status on a terminal. It is a separate module, because rich takes 0.1 s to load."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Self

import click
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from barnabas.cli.output import print_table
from barnabas.cli.progress import human_bytes
from barnabas.pipelines.alerts import words_of
from barnabas.pipelines.status import PipelineStatus, QueryStatus, rejected_words

_COLOURS = {
    "starting": "yellow",
    "running": "green",
    "done": "green",
    "waiting": "yellow",
    "failed": "red",
    "killed": "red",
}

#: Seconds after which the age of a batch is shown.
_BUSY_SHOWN_S = 30

#: Partitions of a query that are shown one by one; those with the most lag.
_PARTITIONS_SHOWN = 8


class LiveTable:
    """A pipeline's status on a terminal, updated in place. Other output stays above it."""

    def __init__(self, *, stderr: bool) -> None:
        self._live = Live(console=Console(stderr=stderr), auto_refresh=False)

    def say(self, words: str) -> None:
        self._live.console.print(escape(words), highlight=False, soft_wrap=True)

    def show(self, status: PipelineStatus) -> None:
        self._live.update(render(status), refresh=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()


_HEADINGS = (
    *("QUERY", "STATE", "READ", "WRITTEN", "IN/S", "DONE/S"),
    *("BATCH", "TOOK", "LAG", "KEPT", "SIZE", "RESTARTS"),
)


def print_status(status: PipelineStatus) -> None:
    """Print the status as text. Lines are not wrapped."""
    click.echo(_head(status) + status.state + _age(status))
    print_table(_HEADINGS, map(_row, status.queries))
    for alert in status.alerts:
        click.echo(f"  alert: {alert}")
    for query in status.queries:
        for line in _details(query):
            click.echo(line.plain)


def render(status: PipelineStatus) -> Group:
    """Return the queries as a table, with their partitions and last errors below it."""
    head = Text.from_markup(f"{escape(_head(status))}{_coloured(status.state)}{_age(status)}")
    table = Table(box=None, pad_edge=False)
    for name in _HEADINGS[:2]:
        table.add_column(name, overflow="fold")
    for name in _HEADINGS[2:]:
        table.add_column(name, justify="right", no_wrap=True)
    for query in status.queries:
        name, state, *numbers = _row(query)
        table.add_row(escape(name), _coloured(state), *numbers)
    alerts = [Text(f"  alert: {alert}", style="red") for alert in status.alerts]
    return Group(head, table, *alerts, *(line for query in status.queries for line in _details(query)))


def _head(status: PipelineStatus) -> str:
    return f"{status.pipeline} on {status.master}: "


def _age(status: PipelineStatus) -> str:
    age = (datetime.now(UTC) - datetime.fromisoformat(status.updated)).total_seconds()
    return f", process {status.pid}, as of {max(0, age):.0f} s ago"


def _row(query: QueryStatus) -> tuple[str, ...]:
    return (
        query.query,
        query.state,
        *map(_number, (query.rows_read, query.rows_written)),
        *map(_number, (query.input_rows_per_second, query.processed_rows_per_second)),
        _number(query.batch),
        "-" if query.batch_ms is None else f"{query.batch_ms / 1000:.1f} s",
        *map(_number, (query.lag, query.state_rows)),
        "-" if query.state_bytes is None else human_bytes(query.state_bytes),
        _number(query.restarts),
    )


def _details(query: QueryStatus) -> list[Text]:
    lines = []
    if query.busy_s is not None and query.busy_s >= _BUSY_SHOWN_S:
        batch = 0 if query.batch is None else query.batch + 1
        since = f", the one before ended at {query.progress_at}" if query.progress_at else ""
        lines.append(Text(f"  {query.query} has been at batch {batch} for {words_of(query.busy_s)}{since}"))
    if query.rows_rejected:
        lines.append(Text(f"  {query.query}: {rejected_words(query.rows_rejected)}: {query.last_rejection}"))
    behind = sorted((each for each in query.partitions if each.lag), key=lambda each: -each.lag)
    for each in behind[:_PARTITIONS_SHOWN]:
        partition = f"{each.topic}-{each.partition}"
        lines.append(
            Text(f"  {query.query} is {each.lag:,} behind in {partition}: at {each.offset} of {each.end}")
        )
    if len(behind) > _PARTITIONS_SHOWN:
        lines.append(Text(f"  and behind in {len(behind) - _PARTITIONS_SHOWN} more partitions"))
    if query.last_error:
        since = f", recovered at {query.recovered_at}" if query.recovered_at else ""
        words = f"  {query.query} failed at {query.last_error_at}{since}: {query.last_error}"
        lines.append(Text(words, style="dim" if since else "red"))
    return lines


def _coloured(state: str) -> str:
    return f"[{_COLOURS[state]}]{state}[/]" if state in _COLOURS else state


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
