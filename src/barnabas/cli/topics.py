"""`barnabas topics`: create, list, describe, alter, delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from barnabas.cli.complete import topic_names, topic_settings
from barnabas.cli.configs import require_known
from barnabas.cli.options import (
    INT16,
    INT32,
    NAME,
    bootstrap_option,
    connect,
    example,
    json_option,
    parse_assignments,
    require_unique,
    unique_names,
)
from barnabas.cli.output import numbers, print_json, print_table
from barnabas.cli.streams import report
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from barnabas.client import Admin
    from barnabas.client.admin_types import PartitionDescription, TopicDescription


@click.group()
def topics() -> None:
    """Create, list, describe, alter and delete topics."""


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
    metavar="N",
    help="The number of partitions.  [default: num.partitions of the broker, usually 1]",
)
@click.option(
    "--replication-factor",
    type=INT16,
    metavar="N",
    help="Replicas of each partition.  [default: default.replication.factor of the broker, usually 1]",
)
@click.option(
    "--replica-assignment",
    metavar="1:2,2:3",
    help="Broker ids for each partition, the preferred leader first; instead of the two above.",
)
@click.option(
    "--config",
    "-c",
    "configs",
    metavar="NAME=VALUE",
    multiple=True,
    shell_complete=topic_settings,
    help="A topic setting; may be repeated.",
)
@click.option("--if-not-exists", is_flag=True, help="Succeed when the topic exists already.")
@click.option(
    "--validate-only", is_flag=True, help="Check whether the topic could be created, and create nothing."
)
@bootstrap_option
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
    from barnabas.errors import ErrorCode, KafkaError

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
    described = admin.describe_topics(admin.topics(internal=internal))
    if as_json:
        print_json([_summary(topic) for topic in described])
    elif not described:
        click.echo("no topics yet: `barnabas topics create NAME` makes one", err=True)
    else:
        print_table(
            ["TOPIC", "PARTITIONS", "REPLICAS"],
            [(topic.name, len(topic.partitions), _replication(topic)) for topic in described],
        )


@topics.command(
    epilog=example(
        """
        barnabas topics describe orders
        barnabas topics describe --under-replicated
        barnabas topics describe orders --json | jq '.[].partitions[].latest_offset'
        """,
        "Without names, all topics, internal ones too. Leader, Replicas and Isr are broker ids; a healthy "
        "partition has all its replicas in sync (Isr). Earliest is the offset of the first record, Latest "
        "the offset that the next record will have, Size the bytes on the leader's disk; - stands for "
        "what the leader does not tell.",
    )
)
@click.argument(
    "names",
    metavar="[NAME]...",
    nargs=-1,
    type=NAME,
    callback=unique_names,
    shell_complete=topic_names,
)
@click.option("--under-replicated", is_flag=True, help="Only partitions whose replicas are not all in sync.")
@json_option
@bootstrap_option
def describe(names: tuple[str, ...], under_replicated: bool, as_json: bool, bootstrap_server: str) -> None:
    """Show the partitions of topics: leader, replicas, offsets and size."""
    admin = connect(bootstrap_server)
    described = admin.describe_topics(names or admin.topics(internal=True))
    if under_replicated:
        described = [topic for topic in described if any(map(_is_under_replicated, topic.partitions))]
    configs = {topic.name: _changed_configs(admin, topic.name) for topic in described}
    extents = _extents(admin, described)
    if as_json:
        print_json([_details(topic, configs[topic.name], extents, under_replicated) for topic in described])
        return
    for topic in described:
        settings = ",".join(f"{name}={value}" for name, value in configs[topic.name].items())
        click.echo(
            f"Topic: {topic.name}\tTopicId: {topic.topic_id}\tPartitionCount: {len(topic.partitions)}\t"
            f"ReplicationFactor: {_replication(topic)}\tConfigs: {settings}"
        )
        for partition in topic.partitions:
            if under_replicated and not _is_under_replicated(partition):
                continue
            leader = "none" if partition.leader is None else partition.leader
            extent = extents[TopicPartition(topic.name, partition.partition)]
            click.echo(
                f"\tTopic: {topic.name}\tPartition: {partition.partition}\tLeader: {leader}\t"
                f"Replicas: {numbers(partition.replicas)}\tIsr: {numbers(partition.isr)}\t"
                f"Earliest: {_shown(extent.earliest)}\tLatest: {_shown(extent.latest)}\t"
                f"Size: {_shown(extent.size)}"
            )


@topics.command(
    epilog=example(
        """
        barnabas topics alter orders --partitions 10
        barnabas topics alter orders --config retention.ms=3600000
        barnabas topics alter orders --delete-config retention.ms
        """,
        "Partitions can only be added. Records stay where they are, so with more partitions a key's new "
        "records "
        "may go to another partition than its old ones.",
    )
)
@click.argument("name", type=NAME, shell_complete=topic_names)
@click.option("--partitions", type=INT32, metavar="N", help="Raise the number of partitions to N.")
@click.option(
    "--config",
    "-c",
    "configs",
    metavar="NAME=VALUE",
    multiple=True,
    shell_complete=topic_settings,
    help="Set a topic setting; may be repeated.",
)
@click.option(
    "--delete-config",
    type=NAME,
    metavar="NAME",
    multiple=True,
    help="Reset a setting to its default; may be repeated.",
)
@bootstrap_option
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
@click.argument(
    "names",
    metavar="NAME...",
    nargs=-1,
    required=True,
    type=NAME,
    callback=unique_names,
    shell_complete=topic_names,
)
@click.option("--if-exists", is_flag=True, help="Succeed when a topic does not exist.")
@bootstrap_option
def delete(names: tuple[str, ...], if_exists: bool, bootstrap_server: str) -> None:
    """Delete topics with all their records. This cannot be undone."""
    from barnabas.errors import ErrorCode, KafkaError

    admin = connect(bootstrap_server)
    for name in names:
        try:
            admin.delete_topic(name)
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            if not if_exists:
                raise KafkaError(
                    error.code, f"there is no topic {name}: nothing after it was deleted"
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


def _changed_configs(admin: Admin, name: str) -> dict[str, str | None]:
    return {value.name: value.value for value in admin.configs("topic", name) if value.source == "topic"}


def _summary(topic: TopicDescription) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "internal": topic.internal,
        "partitions": len(topic.partitions),
        "replication_factor": _replication(topic),
    }


class _Extent(NamedTuple):
    """What a partition holds; None where its leader does not tell."""

    earliest: int | None
    latest: int | None
    size: int | None


def _extents(admin: Admin, topics: Sequence[TopicDescription]) -> dict[TopicPartition, _Extent]:
    places = [
        TopicPartition(topic.name, partition.partition) for topic in topics for partition in topic.partitions
    ]
    led = [
        TopicPartition(topic.name, partition.partition)
        for topic in topics
        for partition in topic.partitions
        if partition.leader is not None
    ]
    earliest = admin.offsets(led, "earliest", skip_failed=True)
    latest = admin.offsets(led, "latest", skip_failed=True)
    sizes = admin.sizes(topics)
    return {place: _Extent(earliest.get(place), latest.get(place), sizes.get(place)) for place in places}


def _is_under_replicated(partition: PartitionDescription) -> bool:
    return len(partition.isr) < len(partition.replicas)


def _shown(number: int | None) -> str:
    return "-" if number is None else str(number)


def _details(
    topic: TopicDescription,
    configs: dict[str, str | None],
    extents: dict[TopicPartition, _Extent],
    under_replicated: bool,
) -> dict[str, Any]:
    partitions: Sequence[dict[str, Any]] = [
        {
            "partition": partition.partition,
            "leader": partition.leader,
            "replicas": list(partition.replicas),
            "isr": list(partition.isr),
            "earliest_offset": extent.earliest,
            "latest_offset": extent.latest,
            "size_bytes": extent.size,
        }
        for partition in topic.partitions
        for extent in [extents[TopicPartition(topic.name, partition.partition)]]
        if not under_replicated or _is_under_replicated(partition)
    ]
    return {**_summary(topic), "configs": configs, "partitions": partitions}
