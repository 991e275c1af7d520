"""Functions for commands that move partitions: they read and write plans, begin moves, and wait for them."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from barnabas.base.errors import KafkaError
from barnabas.base.types import BrokerId, JsonObject, TopicPartition
from barnabas.cli.output import numbers
from barnabas.cli.streams import report

if TYPE_CHECKING:
    from barnabas.client.admin_types import BrokerNode
    from barnabas.client.log_dirs import Replica
    from barnabas.client.moves import Moves, PartitionReplicas

#: a log directory that the broker may choose
_ANY = "any"
#: seconds between two checks of moves under way
CHECK_EVERY = 0.5
_NAMED = 5


#: bytes a second
RATE = click.IntRange(1, 2**63 - 1)
throttle_option = click.option(
    "--throttle",
    type=RATE,
    metavar="BYTES",
    help="Copy at most this number of bytes a second, on each broker; `topics reassign verify` or "
    "`throttle --remove` lifts it.",
)


def connect_moves(bootstrap_server: str) -> Moves:
    """Connect to the cluster, and return an object that reads and moves its replicas.

    Raises ClientError if no broker answers.
    """
    from barnabas.client.moves import Moves
    from barnabas.client.reach import require_broker

    require_broker(bootstrap_server)
    return Moves(bootstrap_server)


def find_broker(nodes: Iterable[BrokerNode], broker: int) -> BrokerNode:
    """Return the node of a broker. Raises click.ClickException when no such broker is alive."""
    by_id = {node.id: node for node in nodes}
    if broker not in by_id:
        raise click.ClickException(f"broker {broker} is not in the cluster; its brokers are {numbers(by_id)}")
    return by_id[broker]


def current_replicas(moves: Moves, topics: Sequence[str] = ()) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """Return the replicas of each partition of `topics`, or of all topics if `topics` is empty.

    If a partition is moving, the result has its replicas after the move.

    Raises:
        KafkaError: a topic does not exist, or a broker rejects the request. ClientError: no broker answers.
    """
    under_way = moves.reassignments()
    return {
        partition: under_way[partition].target if partition in under_way else holders.replicas
        for partition, holders in moves.replicas_of(topics).items()
    }


def plan_as_json(plan: Mapping[TopicPartition, Sequence[BrokerId]]) -> JsonObject:
    """Return the plan in the JSON of Kafka's kafka-reassign-partitions."""
    return {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": number, "replicas": list(replicas)}
            for (topic, number), replicas in sorted(plan.items())
        ],
    }


def read_plan(text: str, source: str) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """Parse a plan that `plan_as_json` or Kafka's kafka-reassign-partitions has written.

    Return the new replicas of each partition, the preferred leader first. `source` is the name of the file
    in error messages.

    Raises:
        click.ClickException: `text` is not a plan, has no partitions, or names a partition twice.
    """
    try:
        plan: dict[TopicPartition, tuple[BrokerId, ...]] = {}
        for item in json.loads(text)["partitions"]:
            partition = TopicPartition(str(item["topic"]), _number(item["partition"]))
            if partition in plan:
                raise click.ClickException(f"{source}: {partition} occurs twice")
            plan[partition] = tuple(_number(replica) for replica in item["replicas"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise click.ClickException(
            f"{source} is not a plan of a reassignment ({type(error).__name__}: {error}): make one with "
            "`barnabas topics reassign plan`"
        ) from None
    if not plan:
        raise click.ClickException(f"{source} has no partitions")
    return plan


def read_log_dirs(text: str, source: str) -> dict[Replica, str]:
    """Return the log directories that a plan names, by broker and partition, except those named "any".

    Args:
        text: a plan that `read_plan` accepts.
        source: name of the plan's file in error messages.

    Raises:
        click.ClickException: a partition does not have one directory for each replica, or a directory is not
            an absolute path.
    """
    found: dict[Replica, str] = {}
    for item in json.loads(text)["partitions"]:
        paths = item.get("log_dirs")
        if paths is None:
            continue
        partition = TopicPartition(item["topic"], item["partition"])
        if not isinstance(paths, list) or len(paths) != len(item["replicas"]):
            raise click.ClickException(
                f"{source}: {partition} needs a log directory for each replica, or none"
            )
        for broker, path in zip(item["replicas"], paths, strict=True):
            if path == _ANY:
                continue
            if not isinstance(path, str) or not path.startswith("/"):
                raise click.ClickException(
                    f'{source}: {path!r:.80} of {partition} is not an absolute path: write one, or "any"'
                )
            found[broker, partition] = path
    return found


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**31:
        raise ValueError(f"{value!r:.80} is not the number of a partition or a broker")
    return value


def begin_moves(
    moves: Moves,
    plan: Mapping[TopicPartition, Sequence[BrokerId]],
    throttle: int | None,
) -> None:
    """Begin the moves of a plan, and limit their copies to `throttle` bytes a second; None sets no limit.

    Raises:
        click.ClickException: the controller refuses to move some partitions. The other moves begin.
        KafkaError, ClientError: a broker rejects a request, or no broker answers.
    """
    if throttle is not None:
        throttle_plan(moves, plan, throttle)
    raise_refused(moves.reassign(plan), "moved")
    report(f"began to move {_partitions(len(plan))}")


def throttle_plan(moves: Moves, plan: Mapping[TopicPartition, Sequence[BrokerId]], rate: int) -> None:
    """Limit the copies of a plan's moves, and of all moves in progress, to `rate` bytes a second.

    `rate` replaces earlier limits. It applies to what each broker sends, and to what each broker receives.
    """
    from barnabas.client.move_throttle import throttle
    from barnabas.client.moves import Move

    copies = moves.reassignments()
    for partition, holders in moves.replicas_of(sorted({partition.topic for partition in plan})).items():
        if partition in plan:
            # While a partition moves, its replicas include those that it adds: they are no source yet.
            added = copies[partition].adding if partition in copies else ()
            sources = [broker for broker in holders.replicas if broker not in added]
            adding = tuple(broker for broker in plan[partition] if broker not in sources)
            copies[partition] = Move((*sources, *adding), adding, ())
    brokers = [node.id for node in moves.cluster().nodes]
    throttle(moves.brokers, copies, brokers, rate)


def raise_refused(errors: Mapping[TopicPartition, KafkaError], what: str) -> None:
    """Raise click.ClickException if `errors` is not empty. The message is one line with the first errors.

    `what` completes the message: "moved" gives "2 partitions could not be moved".
    """
    if errors:
        named = "; ".join(f"{partition}: {error.message}" for partition, error in [*errors.items()][:_NAMED])
        more = "; ..." if len(errors) > _NAMED else ""
        raise click.ClickException(f"{_partitions(len(errors))} could not be {what}: {named}{more}")


def wait_for_moves(moves: Moves, partitions: Collection[TopicPartition]) -> None:
    """Wait until none of the partitions is moving. Print the number of moved partitions when it changes."""
    left = len(partitions)
    while True:
        moving = len(moves.reassignments().keys() & set(partitions))
        if moving < left:
            report(f"{len(partitions) - moving} of {_partitions(len(partitions))} moved")
        if not moving:
            return
        left = moving
        time.sleep(CHECK_EVERY)


def is_where_planned(holders: PartitionReplicas | None, replicas: Sequence[BrokerId]) -> bool:
    """Whether the replicas of a partition, which must not be moving, are exactly the replicas in a plan.

    `holders` is None for a partition that does not exist.
    """
    return holders is not None and holders.replicas == tuple(replicas)


def _partitions(count: int) -> str:
    return f"{count} partition{'s' if count != 1 else ''}"
