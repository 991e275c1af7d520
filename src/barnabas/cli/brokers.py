"""`barnabas brokers`: list, describe, drain and unregister brokers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.moving import (
    begin_moves,
    connect_moves,
    current_replicas,
    plan_as_json,
    throttle_option,
    wait_for_moves,
)
from barnabas.cli.options import bootstrap_option, connect, example, json_option
from barnabas.cli.output import numbers, print_json, print_table
from barnabas.cli.streams import report

if TYPE_CHECKING:
    from barnabas.client.admin_types import Node
    from barnabas.client.moves import Moves

_BROKER = click.IntRange(0, 2**31 - 1)
_TIMEOUT = 15.0


@click.group()
def brokers() -> None:
    """List, describe, drain and unregister brokers."""


@brokers.command(
    "list", epilog=example("barnabas brokers list\nbarnabas brokers list --json | jq -r '.[].broker'")
)
@json_option
@bootstrap_option
def list_brokers(as_json: bool, bootstrap_server: str) -> None:
    """List the brokers that are alive, and what they hold."""
    moves = connect_moves(bootstrap_server)
    cluster = moves.cluster()
    held, led, behind = _loads(moves)
    rows = [
        {
            "broker": node.id,
            "host": node.host,
            "port": node.port,
            "rack": node.rack,
            "controller": node.id == cluster.controller,
            "leaders": led[node.id],
            "replicas": held[node.id],
            "out_of_sync": behind[node.id],
        }
        for node in cluster.nodes
    ]
    if as_json:
        print_json(rows)
        return
    print_table(
        ["BROKER", "ADDRESS", "RACK", "CONTROLLER", "LEADERS", "REPLICAS", "OUT-OF-SYNC"],
        [
            (
                row["broker"],
                f"{row['host']}:{row['port']}",
                row["rack"],
                "yes" if row["controller"] else "no",
                row["leaders"],
                row["replicas"],
                row["out_of_sync"],
            )
            for row in rows
        ],
    )
    away = sorted(held.keys() - {node.id for node in cluster.nodes})
    if away:
        click.echo(f"away, and holding replicas: {numbers(away)}", err=True)


def _loads(moves: Moves) -> tuple[Counter[int], Counter[int], Counter[int]]:
    """Count by broker the replicas it holds, the partitions it leads, and the replicas not in sync."""
    held: Counter[int] = Counter()
    led: Counter[int] = Counter()
    behind: Counter[int] = Counter()
    for holders in moves.holders().values():
        held.update(holders.replicas)
        behind.update({*holders.replicas} - {*holders.isr})
        if holders.leader is not None:
            led[holders.leader] += 1
    return held, led, behind


@brokers.command(
    epilog=example("barnabas brokers describe 2\nbarnabas brokers describe 2 --json | jq .log_dirs"),
)
@click.argument("broker", metavar="ID", type=_BROKER)
@json_option
@bootstrap_option
def describe(broker: int, as_json: bool, bootstrap_server: str) -> None:
    """Show a broker's log directories and partitions. Says which of them it leads."""
    from barnabas.client.broker_calls import describe_log_dirs
    from barnabas.client.servers import security_for

    moves = connect_moves(bootstrap_server)
    cluster = moves.cluster()
    node = _find(cluster.nodes, broker)
    holders = moves.holders()
    leads = [partition for partition, each in holders.items() if each.leader == broker]
    follows = [
        partition for partition, each in holders.items() if broker in each.replicas and each.leader != broker
    ]
    behind = [partition for partition in follows if broker not in holders[partition].isr]
    directories = describe_log_dirs(node, _TIMEOUT, security_for(bootstrap_server))
    found: dict[str, Any] = {
        "broker": node.id,
        "host": node.host,
        "port": node.port,
        "rack": node.rack,
        "controller": node.id == cluster.controller,
        "leads": [str(partition) for partition in leads],
        "follows": [str(partition) for partition in follows],
        "out_of_sync": [str(partition) for partition in behind],
        "log_dirs": directories,
    }
    if as_json:
        print_json(found)
        return
    rack = f", rack {node.rack}" if node.rack is not None else ""
    role = ", the controller" if found["controller"] else ""
    click.echo(f"broker {node.id} at {node.host}:{node.port}{rack}{role}")
    click.echo(f"leads {len(leads)} partitions, follows {len(follows)}, is out of sync in {len(behind)}")
    for partition in behind:
        click.echo(f"\tout of sync: {partition}")
    print_table(
        ["LOG-DIR", "STATE", "REPLICAS", "BYTES", "FREE-BYTES"],
        [
            (each["path"], each["error"] or "online", each["replicas"], each["bytes"], each["free_bytes"])
            for each in directories
        ],
    )


@brokers.command(
    epilog=example(
        """
        barnabas brokers drain 3
        barnabas brokers drain 3 --throttle 50000000
        barnabas brokers drain 3 --dry-run > plan.json
        """,
        "Moves every replica that the broker holds to the others, each to a rack that has none of its "
        "partition if there is one, and nothing else. Then the broker can be stopped for good. Ctrl-C ends "
        "the waiting, not the moves: see `barnabas topics reassign list` and `barnabas topics reassign "
        "cancel`.",
    )
)
@click.argument("broker", metavar="ID", type=_BROKER)
@throttle_option
@click.option("--dry-run", is_flag=True, help="Print the plan and change nothing.")
@click.option("--no-wait", is_flag=True, help="Return when the moves have begun.")
@bootstrap_option
def drain(broker: int, throttle: int | None, dry_run: bool, no_wait: bool, bootstrap_server: str) -> None:
    """Move all replicas of a broker to the others."""
    from barnabas.client.reassignment_plan import plan_drain

    moves = connect_moves(bootstrap_server)
    nodes = moves.cluster().nodes
    racks = {node.id: node.rack for node in nodes}
    current = current_replicas(moves)
    if not any(broker in replicas for replicas in current.values()):
        _find(nodes, broker)
        report(f"broker {broker} holds no replicas")
        return
    plan = plan_drain(current, racks, broker)
    if dry_run:
        print_json(plan_as_json(plan))
        return
    begin_moves(moves, bootstrap_server, plan, throttle)
    if no_wait:
        return
    wait_for_moves(moves, plan)
    if throttle is not None:
        from barnabas.client.move_throttle import lift

        lift(bootstrap_server, _TIMEOUT, {partition.topic for partition in plan}, racks)
    report(f"broker {broker} holds no replicas any more")


@brokers.command(
    epilog=example(
        "barnabas brokers unregister 4",
        "A new topic gets no replicas on a broker that is unregistered, even if too few others run. A broker "
        "that comes back registers again.",
    )
)
@click.argument("broker", metavar="ID", type=_BROKER)
@bootstrap_option
def unregister(broker: int, bootstrap_server: str) -> None:
    """Forget a broker that is gone for good. It has to be stopped."""
    connect(bootstrap_server).unregister_broker(broker)
    report(f"broker {broker} is unregistered")
    held = sum(broker in replicas for replicas in current_replicas(connect_moves(bootstrap_server)).values())
    if held:
        report(f"it still holds {held} replicas: `barnabas brokers drain {broker}` makes them elsewhere")


def _find(nodes: tuple[Node, ...], broker: int) -> Node:
    for node in nodes:
        if node.id == broker:
            return node
    raise click.ClickException(
        f"broker {broker} is not in the cluster; its brokers are {numbers(node.id for node in nodes)}"
    )
