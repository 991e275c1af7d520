"""`barnabas topics reassign`: move partitions to other brokers (KIP-455)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.base.types import BrokerId, TopicPartition
from barnabas.cli.complete import topic_names
from barnabas.cli.moving import (
    CHECK_EVERY,
    RATE,
    begin_moves,
    connect_moves,
    current_replicas,
    find_broker,
    is_where_planned,
    plan_as_json,
    raise_refused,
    read_log_dirs,
    read_plan,
    throttle_option,
    throttle_plan,
    wait_for_moves,
)
from barnabas.cli.options import INT16, bootstrap_option, example, json_option, names_argument
from barnabas.cli.output import Columns, numbers, print_json, print_listing, print_table
from barnabas.cli.streams import report, stdin_bytes

if TYPE_CHECKING:
    from barnabas.client.log_dirs import Replica
    from barnabas.client.moves import Moves

PLAN = click.Path(exists=True, dir_okay=False, allow_dash=True)

#: the topics that a command is about; none for all
topics_argument = names_argument("[NAME]...", topic_names)


@click.group()
def reassign() -> None:
    """Move partitions to other brokers. Plan, execute, verify, cancel, throttle."""


def _brokers(ctx: click.Context, param: click.Parameter, text: str | None) -> list[BrokerId] | None:
    """Parse an option of broker ids: ``1,2,...``, each once. Return None if the option is not given.

    Raises click.UsageError if the text has another form.
    """
    if text is None:
        return None
    try:
        brokers = [int(item) for item in text.split(",")]
    except ValueError:
        brokers = []
    if not brokers or not all(0 <= broker < 2**31 for broker in brokers) or len({*brokers}) < len(brokers):
        raise click.UsageError(f"--brokers {text}: write broker ids as 1,2,3, each once")
    return brokers


@reassign.command(
    epilog=example(
        """
        barnabas topics reassign plan > plan.json
        barnabas topics reassign plan orders payments --brokers 1,2,3 > plan.json
        barnabas topics reassign plan orders --replication-factor 3 > plan.json
        """,
        "Without names, the plan is for all topics together. It spreads replicas and leaders evenly, over as "
        "many racks as possible, and moves as little as possible. It has the format of "
        "`kafka-reassign-partitions`. This command changes nothing: read the plan, then run `barnabas topics "
        "reassign execute plan.json`.",
    )
)
@topics_argument
@click.option(
    "--brokers",
    metavar="1,2,3",
    callback=_brokers,
    help="The brokers for the replicas.  [default: all live brokers]",
)
@click.option(
    "--replication-factor",
    type=INT16,
    help="The number of replicas of each partition.  [default: as many as now]",
)
@bootstrap_option
def plan(
    names: tuple[str, ...],
    brokers: list[BrokerId] | None,
    replication_factor: int | None,
    bootstrap_server: str,
) -> None:
    """Print a plan that spreads topics evenly over brokers."""
    from barnabas.client.reassignment_plan import plan_spread

    moves = connect_moves(bootstrap_server)
    nodes = moves.cluster().nodes
    chosen = nodes if brokers is None else [find_broker(nodes, broker) for broker in brokers]
    current = current_replicas(moves, names)
    targets = {node.id: node.rack for node in chosen}
    planned = plan_spread(current, targets, replication_factor=replication_factor)
    copied = sum(len({*replicas} - {*current[partition]}) for partition, replicas in planned.items())
    click.echo(
        f"{len(planned)} of {len(current)} partitions change, {copied} replicas are to be copied", err=True
    )
    print_json(plan_as_json(planned))


@reassign.command(
    epilog=example(
        """
        barnabas topics reassign execute plan.json
        barnabas topics reassign execute plan.json --throttle 50000000 --wait
        """,
        "Clients read and write the partitions during the move. The controller adds the new replicas, waits "
        "until they are in sync, and then removes the old ones. A move continues after any restart. The "
        '"log_dirs" of a partition name a log directory for each replica, or "any". A replica in another log '
        "directory moves to the named one within its broker.",
    )
)
@click.argument("plan", metavar="PLAN", type=PLAN)
@throttle_option
@click.option("--wait", is_flag=True, help="Return when everything has moved.")
@bootstrap_option
def execute(plan: str, throttle: int | None, wait: bool, bootstrap_server: str) -> None:
    """Begin the moves of the file PLAN; - is stdin."""
    targets, log_dirs = _read(plan)
    moves = connect_moves(bootstrap_server)
    if log_dirs:  # first: replicas that do not exist yet are made there
        _begin_in_brokers(moves, log_dirs)
    begin_moves(moves, targets, throttle)
    if wait:
        wait_for_moves(moves, targets)
        while log_dirs and (astray := _astray(moves, log_dirs)):
            given_up = [partition for partition, is_moving in astray.items() if not is_moving]
            if given_up:
                raise click.ClickException(
                    f"{given_up[0]} does not move to its log directory any more: the broker's log says why"
                )
            time.sleep(CHECK_EVERY)
        if throttle is not None:
            _lift(moves, targets)


@reassign.command(
    "list", epilog=example("barnabas topics reassign list\nbarnabas topics reassign list --json")
)
@json_option
@bootstrap_option
def list_moves(as_json: bool, bootstrap_server: str) -> None:
    """List the partitions that are moving."""
    rows = [
        {
            **partition._asdict(),
            "replicas": list(move.replicas),
            "adding": list(move.adding),
            "removing": list(move.removing),
        }
        for partition, move in sorted(connect_moves(bootstrap_server).reassignments().items())
    ]
    columns: Columns = {
        "TOPIC": "topic",
        "PARTITION": "partition",
        "REPLICAS": lambda row: numbers(row["replicas"]),
        "ADDING": lambda row: numbers(row["adding"]),
        "REMOVING": lambda row: numbers(row["removing"]),
    }
    print_listing(columns, rows, as_json=as_json, empty="no partition is moving")


@reassign.command(
    epilog=example(
        """
        barnabas topics reassign verify plan.json
        until barnabas topics reassign verify plan.json; do sleep 10; done
        """,
        "The exit code is 0 when every partition has the planned replicas; the command then lifts the "
        "throttles.",
    )
)
@click.argument("plan", metavar="PLAN", type=PLAN)
@click.option("--keep-throttle", is_flag=True, help="Leave throttles in place when everything has moved.")
@json_option
@bootstrap_option
def verify(plan: str, keep_throttle: bool, as_json: bool, bootstrap_server: str) -> None:
    """Show which partitions of the file PLAN have moved; - is stdin."""
    targets, log_dirs = _read(plan)
    moves = connect_moves(bootstrap_server)
    under_way = moves.reassignments()
    astray = _astray(moves, log_dirs) if log_dirs else {}
    there = moves.replicas_of(sorted({partition.topic for partition in targets}))
    states = {
        partition: "moving"
        if partition in under_way or astray.get(partition)
        else "moved"
        if is_where_planned(there.get(partition), replicas) and partition not in astray
        else "elsewhere"
        for partition, replicas in sorted(targets.items())
    }
    if as_json:
        print_json([{**partition._asdict(), "state": state} for partition, state in states.items()])
    else:
        print_table(
            ["TOPIC", "PARTITION", "REPLICAS", "STATE"],
            [
                (*partition, numbers(there[partition].replicas) if partition in there else None, state)
                for partition, state in states.items()
            ],
        )
    if {*states.values()} != {"moved"}:
        raise SystemExit(1)
    if not keep_throttle:
        _lift(moves, targets)


@reassign.command(
    epilog=example(
        """
        barnabas topics reassign cancel plan.json
        barnabas topics reassign cancel --all
        """,
        "The partitions return to the brokers that they were on when the move began.",
    )
)
@click.argument("plan", metavar="[PLAN]", type=PLAN, required=False)
@click.option("--all", "all_moves", is_flag=True, help="Cancel all moves that are not finished.")
@bootstrap_option
def cancel(plan: str | None, all_moves: bool, bootstrap_server: str) -> None:
    """Cancel the unfinished moves of the file PLAN; - is stdin."""
    if (plan is None) != all_moves:
        raise click.UsageError("name a plan, or give --all")
    asked = None if plan is None else _read(plan)[0]
    moves = connect_moves(bootstrap_server)
    under_way = moves.reassignments()
    chosen = [partition for partition in under_way if asked is None or partition in asked]
    if not chosen:
        report("no partition is moving")
        return
    raise_refused(moves.reassign(dict.fromkeys(chosen)), "cancelled")
    _lift(moves, chosen)
    report(f"cancelled the moves of {len(chosen)} partitions")


@reassign.command(
    epilog=example(
        """
        barnabas topics reassign throttle 50000000
        barnabas topics reassign throttle --remove
        """,
        "Replicas that are in sync are never throttled, so producers do not wait.",
    )
)
@click.argument("rate", metavar="[BYTES]", type=RATE, required=False)
@click.option("--remove", is_flag=True, help="Remove the throttles of all topics and brokers.")
@bootstrap_option
def throttle(rate: int | None, remove: bool, bootstrap_server: str) -> None:
    """Limit the copies of moving partitions to BYTES a second on each broker."""
    if (rate is None) != remove:
        raise click.UsageError("give the number of bytes a second, or --remove")
    moves = connect_moves(bootstrap_server)
    if rate is not None:
        under_way = moves.reassignments()
        throttle_plan(moves, {}, rate)
        report(f"throttled {len(under_way)} partitions that are moving to {rate} bytes a second")
    else:
        _lift(moves, moves.replicas_of())
        report("lifted all throttles")


def _begin_in_brokers(moves: Moves, log_dirs: Mapping[Replica, str]) -> None:
    from barnabas.client.log_dirs import move

    errors = move(moves.brokers, log_dirs)
    if errors:
        (broker, partition), error = next(iter(errors.items()))
        raise click.ClickException(
            f"{partition} on broker {broker} cannot move to {log_dirs[broker, partition]}: {error.message}"
        )


def _astray(moves: Moves, log_dirs: Mapping[Replica, str]) -> dict[TopicPartition, bool]:
    """Return the partitions with a replica that is not in its planned log directory.

    A partition's value is True if each such replica is moving to its planned directory now, else False.
    """
    from barnabas.client.log_dirs import ReplicaLogDir, replica_log_dirs

    found = replica_log_dirs(moves.brokers, log_dirs)
    astray: dict[TopicPartition, bool] = {}
    for replica, path in log_dirs.items():
        log_dir = found.get(replica, ReplicaLogDir(None, None))
        if log_dir != (path, None):
            astray[replica[1]] = astray.get(replica[1], True) and log_dir.moving_to == path
    return astray


def _read(plan: str) -> tuple[dict[TopicPartition, tuple[BrokerId, ...]], dict[Replica, str]]:
    """Return the plan in a file, or on stdin for ``-``, and the log directories that it names.

    Raises:
        click.ClickException: the text is not UTF-8, or is not a plan.
    """
    data = stdin_bytes().read() if plan == "-" else Path(plan).read_bytes()
    source = "stdin" if plan == "-" else plan
    try:
        text = data.decode()
        return read_plan(text, source), read_log_dirs(text, source)
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{source} is not valid UTF-8") from error


def _lift(moves: Moves, partitions: Iterable[TopicPartition]) -> None:
    from barnabas.client.move_throttle import lift

    topics = {partition.topic for partition in partitions}
    lift(moves.brokers, topics, [node.id for node in moves.cluster().nodes])
