"""`barnabas topics`: create, list, describe, elect, alter, delete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas.base.types import JsonObject, TopicPartition
from barnabas.cli.complete import topic_names, topic_settings
from barnabas.cli.configs import require_known
from barnabas.cli.options import (
    INT16,
    INT32,
    NAME,
    assignments_option,
    bootstrap_option,
    bootstrap_option_beside_config,
    connect,
    example,
    json_option,
    names_argument,
    parse_assignments,
    require_unique,
)
from barnabas.cli.output import numbers, print_json, print_listing, print_table
from barnabas.cli.reassign import reassign, topics_argument
from barnabas.cli.streams import report

if TYPE_CHECKING:
    from barnabas.cli.partition_health import Health
    from barnabas.client import Admin
    from barnabas.client.admin_types import ConfigValue, PartitionDescription, TopicDescription


#: columns of `topics describe` that a healthy topic does not need
_LEFT_OUT = ("ELR", "LAST KNOWN ELR", "STATE")
_config_option = assignments_option(
    "--config", "-c", to="configs", complete=topic_settings, help="A topic setting; may be repeated."
)


@click.group()
def topics() -> None:
    """Create, list, describe, alter, move and delete topics."""


topics.add_command(reassign)


@topics.command(
    epilog=example(
        """
        barnabas topics create orders --partitions 5
        barnabas topics create latest --partitions 3 --config cleanup.policy=compact
        barnabas topics create audit --config retention.ms=-1 --if-not-exists
        """,
        "More partitions let more consumers of a group share the work; records of one key keep their order "
        "within a partition. `barnabas configs describe --topic NAME` shows every setting a topic has.",
    )
)
@click.argument("name", type=NAME)
@click.option(
    "--partitions",
    type=INT32,
    help="The number of partitions.  [default: num.partitions of the broker, usually 1]",
)
@click.option(
    "--replication-factor",
    type=INT16,
    help="Replicas of each partition.  [default: default.replication.factor of the broker, usually 1]",
)
@click.option(
    "--replica-assignment",
    metavar="1:2,2:3",
    help="Broker ids for each partition, the preferred leader first; instead of the two above.",
)
@_config_option
@click.option("--if-not-exists", is_flag=True, help="Succeed when the topic exists already.")
@click.option(
    "--validate-only", is_flag=True, help="Check whether the topic could be created, and create nothing."
)
@bootstrap_option_beside_config
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    validate_only: bool,
    bootstrap_server: str,
) -> None:
    """Create the topic NAME."""
    from barnabas.base.errors import ErrorCode, KafkaError

    assignments = _parse_assignment(replica_assignment)
    if assignments is not None and (partitions is not None or replication_factor is not None):
        raise click.UsageError(
            "--replica-assignment says both the partitions and the replicas: leave out --partitions and "
            "--replication-factor"
        )
    values = parse_assignments(configs, "--config")
    try:
        connect(bootstrap_server).create_topic(
            name,
            partitions,
            replication_factor=replication_factor,
            configs=values,
            assignments=assignments,
            validate_only=validate_only,
        )
    except KafkaError as error:
        if not (if_not_exists and error.code == ErrorCode.TOPIC_ALREADY_EXISTS):
            raise
        report(f"topic {name} exists already")
        return
    report(f"topic {name} could be created" if validate_only else f"created topic {name}")


@topics.command(
    "list", epilog=example("barnabas topics list\nbarnabas topics list --json | jq -r '.[].topic'")
)
@click.option("--internal", is_flag=True, help="Also internal topics, such as __consumer_offsets.")
@json_option
@bootstrap_option
def list_topics(internal: bool, as_json: bool, bootstrap_server: str) -> None:
    """List the topics of the cluster."""
    admin = connect(bootstrap_server)
    rows = [_summary(topic) for topic in admin.describe_topics(admin.topics(internal=internal))]
    columns = {"TOPIC": "topic", "PARTITIONS": "partitions", "REPLICAS": "replication_factor"}
    print_listing(
        columns, rows, as_json=as_json, empty="no topics yet: `barnabas topics create NAME` makes one"
    )


@topics.command(
    epilog=example(
        """
        barnabas topics describe orders
        barnabas topics describe --under-replicated
        barnabas topics describe --unavailable --under-min-isr
        barnabas topics describe orders --json | jq '.[].partitions[].latest_offset'
        """,
        "Without names, the command shows all topics, also internal ones. LEADER, REPLICAS and ISR are "
        "broker ids; a healthy partition has all its replicas in sync (ISR). Replicas in ELR are not in "
        "sync, but can lead without loss. If ISR and ELR are empty, the controller waits for the replicas "
        "in LAST KNOWN ELR. EARLIEST is the offset of the first record, LATEST the offset of the next "
        "record, SIZE the bytes on the leader's disk; - means that the leader did not answer. The table has "
        "ELR, LAST KNOWN ELR and STATE only if a partition has one. With several filters, the table has "
        "each partition that one of them matches.",
    )
)
@topics_argument
@click.option(
    "--under-replicated",
    "--under-replicated-partitions",
    is_flag=True,
    help="Only partitions whose replicas are not all in sync.",
)
@click.option(
    "--unavailable",
    "--unavailable-partitions",
    is_flag=True,
    help="Only partitions without a leader that is alive.",
)
@click.option(
    "--under-min-isr",
    "--under-min-isr-partitions",
    is_flag=True,
    help="Only partitions with fewer replicas in sync than min.insync.replicas.",
)
@click.option(
    "--at-min-isr",
    "--at-min-isr-partitions",
    is_flag=True,
    help="Only partitions with just as many replicas in sync as min.insync.replicas.",
)
@json_option
@bootstrap_option
def describe(
    names: tuple[str, ...],
    under_replicated: bool,
    unavailable: bool,
    under_min_isr: bool,
    at_min_isr: bool,
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Show partitions of topics: leader, replicas, offsets, size."""
    from barnabas.cli.partition_health import UNAVAILABLE, UNDER_MIN_ISR, UNDER_REPLICATED, Health

    admin = connect(bootstrap_server)
    described = admin.describe_topics(names or admin.topics(internal=True))
    configs = {topic.name: admin.configs("topic", topic.name) for topic in described}
    health = Health(bootstrap_server, described, configs)
    marks = (UNDER_REPLICATED, UNAVAILABLE, UNDER_MIN_ISR)
    wanted = {*compress(marks, (under_replicated, unavailable, under_min_isr))}
    is_filtered = bool(wanted) or at_min_isr

    def is_shown(topic: str, partition: PartitionDescription) -> bool:
        is_wanted = not wanted.isdisjoint(health.marks(topic, partition))
        return not is_filtered or is_wanted or (at_min_isr and health.is_at_min_isr(topic, partition))

    shown = [
        replace(topic, partitions=tuple(p for p in topic.partitions if is_shown(topic.name, p)))
        for topic in described
    ]
    shown = [topic for topic in shown if topic.partitions or not is_filtered]
    extents = _extents(admin, shown)
    totals = {topic.name: topic for topic in described}
    if as_json:
        print_json(
            [
                _details(totals[topic.name], topic, _changed(configs[topic.name]), extents, health)
                for topic in shown
            ]
        )
        return
    for number, topic in enumerate(shown):
        if number:
            click.echo()
        total = len(totals[topic.name].partitions)
        _print_topic(topic, total, _changed(configs[topic.name]), extents, health)


def _print_topic(
    topic: TopicDescription,
    total: int,
    settings: dict[str, str | None],
    extents: dict[TopicPartition, _Extent],
    health: Health,
) -> None:
    """Print a heading and a table of a topic's partitions. Columns without a value are left out.

    Args:
        topic: the topic, with the partitions to print.
        total: number of all partitions of the topic.
        settings: settings that differ from their defaults, for the heading.
        extents: offsets and size of each partition.
        health: finds the problems of partitions.
    """
    count = "1 partition" if total == 1 else f"{total} partitions"
    changed = "".join(f", {name}={value}" for name, value in settings.items())
    click.echo(f"topic {topic.name}: {count}, replication factor {_replication(topic)}{changed}")
    click.echo(f"id {topic.topic_id}")
    headings = (
        *("PARTITION", "LEADER", "REPLICAS", "ISR", "ELR", "LAST KNOWN ELR"),
        *("EARLIEST", "LATEST", "SIZE", "STATE"),
    )
    rows = []
    for partition in topic.partitions:
        extent = extents[TopicPartition(topic.name, partition.partition)]
        holders = health.holders(topic.name, partition)
        rows.append(
            (
                partition.partition,
                "none" if partition.leader is None else partition.leader,
                numbers(partition.replicas),
                numbers(partition.isr),
                numbers(holders.elr or ()),
                numbers(holders.last_known_elr or ()),
                extent.earliest,
                extent.latest,
                extent.size,
                ",".join(health.marks(topic.name, partition)) or None,
            )
        )
    if not rows:
        return
    shown = [
        heading not in _LEFT_OUT or any(row[column] is not None for row in rows)
        for column, heading in enumerate(headings)
    ]
    print_table(list(compress(headings, shown)), [list(compress(row, shown)) for row in rows])


@topics.command(
    epilog=example(
        """
        barnabas topics elect
        barnabas topics elect orders payments:0,2
        barnabas topics elect orders:1 --unclean
        barnabas topics elect --unclean --all
        """,
        "A partition's preferred leader is the first of its replicas. A broker that comes back leads "
        "nothing until such an election; with auto.leader.rebalance.enable the controller starts it. An "
        "unclean election accepts the loss of records. Use it for a partition without a leader if all "
        "replicas with all records are lost permanently.",
    )
)
@click.argument("names", metavar="[NAME[:0,1,2]]...", nargs=-1, type=NAME, shell_complete=topic_names)
@click.option(
    "--unclean",
    is_flag=True,
    help="If there is no leader, elect a replica that may lack records; these are then lost.",
)
@click.option("--all", "is_all", is_flag=True, help="With --unclean: all partitions that have no leader.")
@bootstrap_option
def elect(names: tuple[str, ...], unclean: bool, is_all: bool, bootstrap_server: str) -> None:
    """Elect the preferred leaders of all partitions, or of the given ones."""
    from barnabas.cli.moving import connect_moves, raise_refused

    if is_all and names:
        raise click.UsageError("give either names or --all")
    if unclean and not names and not is_all:
        raise click.UsageError("--unclean loses records: name the topics or partitions, or give --all")
    asked = [_parse_partition(text) for text in names]
    moves = connect_moves(bootstrap_server)
    partitions: set[TopicPartition] | None = None
    if asked:
        there = moves.replicas_of(sorted({name for name, _ in asked}))
        partitions = {
            partition
            for name, chosen in asked
            for partition in (
                [p for p in there if p.topic == name]
                if chosen is None
                else [TopicPartition(name, number) for number in chosen]
            )
        }
    results = moves.elect(partitions, is_unclean=unclean)
    elected = [partition for partition, error in results.items() if error is None]
    report(f"elected leaders of {len(elected)} partitions" if elected else "every leader stays")
    raise_refused({p: error for p, error in results.items() if error is not None}, "led otherwise")


def _parse_partition(text: str) -> tuple[str, list[int] | None]:
    name, colon, given = text.partition(":")
    if not colon:
        return name, None
    try:
        chosen = [int(number) for number in given.split(",")]
    except ValueError:
        chosen = []
    if not chosen or not all(0 <= number < 2**31 for number in chosen):
        raise click.UsageError(f"{text}: write NAME or NAME:0,1,2")
    return name, chosen


@topics.command(
    epilog=example(
        """
        barnabas topics alter orders --partitions 10
        barnabas topics alter orders --config retention.ms=3600000
        barnabas topics alter orders --delete-config retention.ms
        """,
        "Partitions can only be added. Records stay where they are, so with more partitions a key's new "
        "records may go to another partition than its old ones.",
    )
)
@click.argument("name", type=NAME, shell_complete=topic_names)
@click.option("--partitions", type=INT32, help="Raise the number of partitions to N.")
@_config_option
@click.option(
    "--delete-config", type=NAME, multiple=True, help="Reset a setting to its default; may be repeated."
)
@bootstrap_option_beside_config
def alter(
    name: str,
    partitions: int | None,
    configs: tuple[str, ...],
    delete_config: tuple[str, ...],
    bootstrap_server: str,
) -> None:
    """Add partitions to the topic NAME, or change its settings."""
    values = parse_assignments(configs, "--config")
    require_unique([*values, *delete_config], "the command changes")
    if partitions is None and not values and not delete_config:
        raise click.UsageError("nothing to alter: give --partitions, --config or --delete-config")
    admin = connect(bootstrap_server)
    require_known(admin, "topic", name, delete_config)
    if values or delete_config:
        admin.alter_configs("topic", name, set=values, delete=delete_config)
    if partitions is not None:
        admin.add_partitions(name, partitions)
    report(f"altered topic {name}")


@topics.command(
    epilog=example("barnabas topics delete orders\nbarnabas topics delete old-1 old-2 --if-exists"),
)
@names_argument("NAME...", topic_names)
@click.option("--if-exists", is_flag=True, help="Succeed when a topic does not exist.")
@bootstrap_option
def delete(names: tuple[str, ...], if_exists: bool, bootstrap_server: str) -> None:
    """Delete topics with all their records. This cannot be undone."""
    from barnabas.base.errors import ErrorCode, KafkaError

    admin = connect(bootstrap_server)
    for name in names:
        try:
            admin.delete_topic(name)
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            if not if_exists:
                raise KafkaError(
                    error.code, f"there is no topic {name}: the topics named after it were not deleted"
                ) from None
            report(f"there is no topic {name}")
        else:
            report(f"deleted topic {name}")


def _parse_assignment(text: str | None) -> list[list[int]] | None:
    if text is None:
        return None
    try:
        assignment = [[int(broker) for broker in replicas.split(":")] for replicas in text.split(",")]
    except ValueError:
        assignment = []
    if not all(0 <= broker < 2**31 for replicas in assignment for broker in replicas) or not assignment:
        raise click.UsageError(
            f"--replica-assignment {text}: write broker ids as 1:2,2:3 (two partitions of two replicas)"
        )
    return assignment


def _replication(topic: TopicDescription) -> int:
    return len(topic.partitions[0].replicas) if topic.partitions else 0


def _changed(configs: Sequence[ConfigValue]) -> dict[str, str | None]:
    return {value.name: value.value for value in configs if value.source == "topic"}


def _summary(topic: TopicDescription) -> JsonObject:
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "internal": topic.internal,
        "partitions": len(topic.partitions),
        "replication_factor": _replication(topic),
    }


class _Extent(NamedTuple):
    """The offsets and size of a partition; None for each value that the leader has not returned."""

    earliest: int | None
    latest: int | None
    size: int | None


def _extents(admin: Admin, topics: Sequence[TopicDescription]) -> dict[TopicPartition, _Extent]:
    has_leader = {
        TopicPartition(topic.name, each.partition): each.leader is not None
        for topic in topics
        for each in topic.partitions
    }
    with_leader = [partition for partition in has_leader if has_leader[partition]]
    earliest = admin.offsets(with_leader, "earliest", skip_failed=True)
    latest = admin.offsets(with_leader, "latest", skip_failed=True)
    sizes = admin.sizes(topics)
    return {each: _Extent(earliest.get(each), latest.get(each), sizes.get(each)) for each in has_leader}


def _details(
    whole: TopicDescription,
    topic: TopicDescription,
    configs: dict[str, str | None],
    extents: dict[TopicPartition, _Extent],
    health: Health,
) -> JsonObject:
    partitions = [
        {
            "partition": partition.partition,
            "leader": partition.leader,
            "replicas": list(partition.replicas),
            "isr": list(partition.isr),
            "elr": None if holders.elr is None else list(holders.elr),
            "last_known_elr": None if holders.last_known_elr is None else list(holders.last_known_elr),
            "earliest_offset": extent.earliest,
            "latest_offset": extent.latest,
            "size_bytes": extent.size,
            "state": list(health.marks(topic.name, partition)),
        }
        for partition in topic.partitions
        for extent in [extents[TopicPartition(topic.name, partition.partition)]]
        for holders in [health.holders(topic.name, partition)]
    ]
    return {**_summary(whole), "configs": configs, "partitions": partitions}
