"""`barnabas top`: brokers, topics and groups with their rates, updated in the terminal."""

from __future__ import annotations

import io
import shutil
import sys
import time
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.brokers import count_replicas
from barnabas.cli.options import DURATION, Whole, bootstrap_option, connect, example, json_option
from barnabas.cli.output import Columns, print_json_line, print_rows
from barnabas.cli.progress import human_bytes

if TYPE_CHECKING:
    from barnabas.client.overview import Overview

#: number of groups whose offsets each sample requests
_MAX_GROUPS = 50


@click.command(
    epilog=example(
        """
        barnabas top
        barnabas top --interval 5 --rows 20
        barnabas top --once --json | jq .topics
        """,
        "The busiest topics and the groups furthest behind come first. If stdout is not a terminal, each "
        "sample is printed below the one before. Ctrl-C ends it.",
    )
)
@click.option(
    "--interval",
    type=DURATION,
    default=2.0,
    show_default=True,
    help="Seconds between two samples, over which rates are measured.",
)
@click.option(
    "--rows",
    type=Whole(1, 10_000),
    help="The number of topics and of groups to show.  [default: as many as fit on the terminal]",
)
@click.option("--once", is_flag=True, help="Show one sample, without rates, and end.")
@json_option
@bootstrap_option
def top(interval: float, rows: int | None, once: bool, as_json: bool, bootstrap_server: str) -> None:
    """Show brokers, topics and groups with their rates, updated in place."""
    from barnabas.client.overview import look

    admin = connect(bootstrap_server)
    before = None
    while True:
        now = look(admin, time.monotonic(), max_groups=_MAX_GROUPS)
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
    """Return the sample `now` as an object for JSON, with rates since the sample `before` if there is one."""
    from barnabas.client.overview import rate

    seconds = 0.0 if before is None else now.time - before.time
    replicas, leaders, out_of_sync = count_replicas(each for topic in now.topics for each in topic.partitions)
    topics = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "records_per_second": rate(
                now.ends[topic.name], before.ends.get(topic.name) if before else None, seconds
            ),
            "end": now.ends[topic.name],
            "bytes": now.sizes.get(topic.name),  # unknown to a user without DESCRIBE on the cluster
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
                "leads": leaders[node.id],
                "replicas": replicas[node.id],
                "out_of_sync": out_of_sync[node.id],
            }
            for node in now.cluster.nodes
        ],
        "topics": sorted(
            topics, key=lambda each: (-(each["records_per_second"] or 0), -(each["bytes"] or 0))
        ),
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
    print_rows(_BROKER_COLUMNS, found["brokers"])
    click.echo()
    print_rows(_TOPIC_COLUMNS, found["topics"][:rows])
    click.echo()
    print_rows(_GROUP_COLUMNS, found["groups"][:rows])
    if found["more_groups"]:
        click.echo(f"and {found['more_groups']} groups more, which are not asked")


def _rate(row: dict[str, Any]) -> str | None:
    value = row["records_per_second"]
    return None if value is None else f"{value:,.0f}"


def _trend(group: dict[str, Any]) -> str:
    before = group["lag_before"]
    if before is None or before == group["lag"]:
        return ""
    return "grows" if group["lag"] > before else "falls"


_BROKER_COLUMNS: Columns = {
    "BROKER": "broker",
    "ADDRESS": "address",
    "LEADERS": "leads",
    "REPLICAS": "replicas",
    "OUT-OF-SYNC": "out_of_sync",
}
_TOPIC_COLUMNS: Columns = {
    "TOPIC": "topic",
    "PARTITIONS": "partitions",
    "RECORDS/S": _rate,
    "END": "end",
    "SIZE": lambda row: None if row["bytes"] is None else human_bytes(row["bytes"]),
    "OUT-OF-SYNC": "out_of_sync",
}
_GROUP_COLUMNS: Columns = {
    "GROUP": "group",
    "STATE": "state",
    "TOPIC": "topic",
    "LAG": "lag",
    "TREND": _trend,
    "RECORDS/S": _rate,
}
