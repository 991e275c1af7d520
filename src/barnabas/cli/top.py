"""`barnabas top`: brokers, topics and groups with their rates, updated in the terminal."""

from __future__ import annotations

import io
import shutil
import sys
import time
from collections import Counter
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.options import DURATION, bootstrap_option, connect, example, json_option
from barnabas.cli.output import print_json_line, print_table

if TYPE_CHECKING:
    from barnabas.client.overview import Overview

#: how many groups are asked for their offsets each time
_MOST_GROUPS = 50
_UNITS = ("B", "KB", "MB", "GB", "TB")


@click.command(
    epilog=example(
        """
        barnabas top
        barnabas top --interval 5 --rows 20
        barnabas top --once --json | jq .topics
        """,
        "The busiest topics and the groups furthest behind come first. Where stdout is no terminal, each "
        "look is printed below the one before. Ctrl-C ends it.",
    )
)
@click.option(
    "--interval",
    type=DURATION,
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="The time between two looks, over which rates are measured.",
)
@click.option(
    "--rows",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="How many topics and groups.  [default: as the terminal has room for]",
)
@click.option("--once", is_flag=True, help="Look once, without rates, and end.")
@json_option
@bootstrap_option
def top(interval: float, rows: int | None, once: bool, as_json: bool, bootstrap_server: str) -> None:
    """Show brokers, topics and groups with their rates, updated in place."""
    from barnabas.client.overview import look

    admin = connect(bootstrap_server)
    before = None
    while True:
        now = look(admin, time.monotonic(), most_groups=_MOST_GROUPS)
        found = describe(now, before)
        if as_json:
            print_json_line(found)
            sys.stdout.flush()
        else:
            _show(found, rows, clear=not once and sys.stdout.isatty())
        if once:
            return
        before = now
        time.sleep(max(0.1, interval))


def describe(now: Overview, before: Overview | None) -> dict[str, Any]:
    """Return the text for two samples, the last and the one before."""
    from barnabas.client.overview import rate

    seconds = 0.0 if before is None else now.time - before.time
    held: Counter[int] = Counter()
    led: Counter[int] = Counter()
    behind: Counter[int] = Counter()
    for topic in now.topics:
        for each in topic.partitions:
            held.update(each.replicas)
            behind.update({*each.replicas} - {*each.isr})
            if each.leader is not None:
                led[each.leader] += 1
    topics = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "records_per_second": rate(
                now.ends[topic.name], before.ends.get(topic.name) if before else None, seconds
            ),
            "end": now.ends[topic.name],
            "bytes": now.sizes[topic.name],
            "out_of_sync": sum(len(each.isr) < len(each.replicas) for each in topic.partitions),
            "without_leader": sum(each.leader is None for each in topic.partitions),
        }
        for topic in now.topics
    ]
    groups = []
    for name, group in now.groups.items():
        earlier = before.groups.get(name) if before is not None else None
        for topic_name, lag in group.lag.items():
            committed = earlier.committed.get(topic_name) if earlier is not None else None
            groups.append(
                {
                    "group": name,
                    "state": group.state,
                    "topic": topic_name,
                    "lag": lag,
                    "lag_before": earlier.lag.get(topic_name) if earlier is not None else None,
                    "records_per_second": rate(group.committed[topic_name], committed, seconds),
                }
            )
    return {
        "cluster": now.cluster.cluster_id,
        "controller": now.cluster.controller,
        "without_leader": now.without_leader,
        "out_of_sync": now.out_of_sync,
        "brokers": [
            {
                "broker": node.id,
                "address": f"{node.host}:{node.port}",
                "leads": led[node.id],
                "replicas": held[node.id],
                "out_of_sync": behind[node.id],
            }
            for node in now.cluster.nodes
        ],
        "topics": sorted(topics, key=lambda each: (-(each["records_per_second"] or 0), -each["bytes"])),
        "groups": sorted(groups, key=lambda each: -each["lag"]),
        "more_groups": now.more_groups,
    }


def _show(found: dict[str, Any], rows: int | None, *, clear: bool) -> None:
    width, height = shutil.get_terminal_size()
    if rows is None:
        rows = max(3, (height - len(found["brokers"]) - 8) // 2)
    with redirect_stdout(io.StringIO()) as screen:
        _print(found, rows)
    text = screen.getvalue()
    if clear:
        lines = [line[:width] for line in text.splitlines()[: height - 1]]
        text = "\x1b[H\x1b[J" + "\n".join(lines)
    click.echo(text.rstrip("\n"))


def _print(found: dict[str, Any], rows: int) -> None:
    click.echo(
        f"cluster {found['cluster']}  controller {found['controller']}  "
        f"partitions without a leader {found['without_leader']}, out of sync {found['out_of_sync']}  "
        f"{time.strftime('%H:%M:%S')}"
    )
    click.echo()
    print_table(
        ["BROKER", "ADDRESS", "LEADERS", "REPLICAS", "OUT-OF-SYNC"],
        [
            (each["broker"], each["address"], each["leads"], each["replicas"], each["out_of_sync"])
            for each in found["brokers"]
        ],
    )
    click.echo()
    print_table(
        ["TOPIC", "PARTITIONS", "RECORDS/S", "END", "SIZE", "OUT-OF-SYNC"],
        [
            (
                each["topic"],
                each["partitions"],
                _rate(each["records_per_second"]),
                each["end"],
                _size(each["bytes"]),
                each["out_of_sync"],
            )
            for each in found["topics"][:rows]
        ],
    )
    click.echo()
    print_table(
        ["GROUP", "STATE", "TOPIC", "LAG", "TREND", "RECORDS/S"],
        [
            (
                each["group"],
                each["state"],
                each["topic"],
                each["lag"],
                _trend(each),
                _rate(each["records_per_second"]),
            )
            for each in found["groups"][:rows]
        ],
    )
    if found["more_groups"]:
        click.echo(f"and {found['more_groups']} groups more, which are not asked")


def _rate(value: float | None) -> str | None:
    return None if value is None else f"{value:,.0f}"


def _trend(group: dict[str, Any]) -> str:
    before = group["lag_before"]
    if before is None or before == group["lag"]:
        return ""
    return "grows" if group["lag"] > before else "falls"


def _size(value: float) -> str:
    for unit in _UNITS:
        if value < 1000 or unit == _UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError
