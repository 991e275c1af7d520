"""`barnabas brokers`: list, describe, drain and unregister brokers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from barnabas.base.types import JsonObject
from barnabas.cli.moving import (
    begin_moves,
    connect_moves,
    current_replicas,
    find_broker,
    plan_as_json,
    throttle_option,
    wait_for_moves,
)
from barnabas.cli.options import BROKER, bootstrap_option, connect, example, json_option
from barnabas.cli.output import Columns, numbers, print_json, print_listing, print_rows
from barnabas.cli.streams import report

if TYPE_CHECKING:
    from barnabas.client.admin_types import PartitionDescription
    from barnabas.client.moves import PartitionReplicas


@click.group()
def brokers() -> None:
    """List, describe, drain and unregister brokers."""


@brokers.command(
    "list", epilog=example("barnabas brokers list\nbarnabas brokers list --json | jq -r '.[].broker'")
)
@json_option
@bootstrap_option
def list_brokers(as_json: bool, bootstrap_server: str) -> None:
    """List the live brokers and their replicas."""
    moves = connect_moves(bootstrap_server)
    cluster = moves.cluster()
    replicas, leaders, out_of_sync = count_replicas(moves.replicas_of().values())
    rows = [
        {
            "broker": node.id,
            "host": node.host,
            "port": node.port,
            "rack": node.rack,
            "controller": node.id == cluster.controller,
            "leaders": leaders[node.id],
            "replicas": replicas[node.id],
            "out_of_sync": out_of_sync[node.id],
        }
        for node in cluster.nodes
    ]
    columns: Columns = {
        "BROKER": "broker",
        "ADDRESS": lambda row: f"{row['host']}:{row['port']}",
        "RACK": "rack",
        "CONTROLLER": lambda row: "yes" if row["controller"] else "no",
        "LEADERS": "leaders",
        "REPLICAS": "replicas",
        "OUT-OF-SYNC": "out_of_sync",
    }
    print_listing(columns, rows, as_json=as_json, empty="no brokers")
    away = sorted(replicas.keys() - {node.id for node in cluster.nodes})
    if away and not as_json:
        click.echo(f"away, and holding replicas: {numbers(away)}", err=True)


def count_replicas(
    partitions: Iterable[PartitionReplicas | PartitionDescription],
) -> tuple[Counter[int], Counter[int], Counter[int]]:
    """Return three counters by broker id: replicas, leaderships, and replicas that are not in the ISR."""
    replicas: Counter[int] = Counter()
    leaders: Counter[int] = Counter()
    out_of_sync: Counter[int] = Counter()
    for partition in partitions:
        replicas.update(partition.replicas)
        out_of_sync.update({*partition.replicas} - {*partition.isr})
        if partition.leader is not None:
            leaders[partition.leader] += 1
    return replicas, leaders, out_of_sync


@brokers.command(
    epilog=example("barnabas brokers describe 2\nbarnabas brokers describe 2 --json | jq .log_dirs"),
)
@click.argument("broker", metavar="ID", type=BROKER)
@json_option
@bootstrap_option
def describe(broker: int, as_json: bool, bootstrap_server: str) -> None:
    """Show a broker's log directories and partitions, and which of them it leads."""
    from barnabas.client.log_dirs import describe_log_dirs

    moves = connect_moves(bootstrap_server)
    cluster = moves.cluster()
    node = find_broker(cluster.nodes, broker)
    held = {str(name): each for name, each in moves.replicas_of().items() if broker in each.replicas}
    leads = [name for name, each in held.items() if each.leader == broker]
    follows = [name for name, each in held.items() if each.leader != broker]
    behind = [name for name in follows if broker not in held[name].isr]
    directories = describe_log_dirs(moves.brokers, broker)
    found: JsonObject = {
        "broker": node.id,
        "host": node.host,
        "port": node.port,
        "rack": node.rack,
        "controller": node.id == cluster.controller,
        "leads": leads,
        "follows": follows,
        "out_of_sync": behind,
        "log_dirs": directories,
    }
    if as_json:
        print_json(found)
        return
    rack = f", rack {node.rack}" if node.rack is not None else ""
    role = ", the controller" if found["controller"] else ""
    click.echo(f"broker {node.id} at {node.host}:{node.port}{rack}{role}")
    click.echo(f"leads {len(leads)} partitions, follows {len(follows)}, is out of sync in {len(behind)}")
    for name in behind:
        click.echo(f"\tout of sync: {name}")
    columns: Columns = {
        "LOG-DIR": "path",
        "STATE": lambda each: each["error"] or "online",
        "REPLICAS": "replicas",
        "BYTES": "bytes",
        "FREE-BYTES": "free_bytes",
    }
    print_rows(columns, directories)


@brokers.command(
    epilog=example(
        """
        barnabas brokers drain 3
        barnabas brokers drain 3 --throttle 50000000
        barnabas brokers drain 3 --dry-run > plan.json
        """,
        "Moves every replica of the broker to the other brokers, and no other replica. If possible, a "
        "replica goes to a rack without another replica of its partition. Then you can remove the "
        "broker. Ctrl-C ends the waiting, not the moves: see `barnabas topics reassign list` and `barnabas "
        "topics reassign cancel`.",
    )
)
@click.argument("broker", metavar="ID", type=BROKER)
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
        find_broker(nodes, broker)
        report(f"broker {broker} holds no replicas")
        return
    plan = plan_drain(current, racks, broker)
    if dry_run:
        print_json(plan_as_json(plan))
        return
    begin_moves(moves, plan, throttle)
    if no_wait:
        return
    wait_for_moves(moves, plan)
    if throttle is not None:
        from barnabas.client.move_throttle import lift

        lift(moves.brokers, {partition.topic for partition in plan}, racks)
    report(f"broker {broker} holds no replicas any more")


@brokers.command(
    epilog=example(
        "barnabas brokers unregister 4",
        "An unregistered broker gets no replicas of new topics, even if too few other brokers run. A broker "
        "that comes back registers again.",
    )
)
@click.argument("broker", metavar="ID", type=BROKER)
@bootstrap_option
def unregister(broker: int, bootstrap_server: str) -> None:
    """Remove a stopped broker from the cluster permanently."""
    connect(bootstrap_server).unregister_broker(broker)
    report(f"broker {broker} is unregistered")
    held = sum(broker in replicas for replicas in current_replicas(connect_moves(bootstrap_server)).values())
    if held:
        report(f"it still holds {held} replicas: `barnabas brokers drain {broker}` makes them elsewhere")
