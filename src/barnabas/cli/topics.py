"""`barnabas topics`: create, list, describe, alter, delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.complete import topic_names, topic_settings
from barnabas.cli.options import bootstrap_option, connect, example, json_option, parse_assignments
from barnabas.cli.output import numbers, print_json, print_table

if TYPE_CHECKING:
    from barnabas.client import Admin
    from barnabas.client.admin_types import TopicDescription


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
@click.argument("name")
@click.option("--partitions", type=click.IntRange(min=1), metavar="N", help="[default: the broker's, 1]")
@click.option(
    "--replication-factor", type=click.IntRange(min=1), metavar="N", help="[default: the broker's, 1]"
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
@click.option("--if-not-exists", is_flag=True, help="Be content when the topic is there.")
@click.option("--validate-only", is_flag=True, help="Say what would happen, and create nothing.")
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
        click.echo(f"topic {name} is there already")
        return
    click.echo(f"topic {name} could be created" if validate_only else f"created topic {name}")


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
        """,
        "Without names, all topics. Leader, Replicas and Isr are broker ids; a healthy partition has all its "
        "replicas in sync (Isr).",
    )
)
@click.argument("names", nargs=-1, shell_complete=topic_names)
@click.option("--under-replicated", is_flag=True, help="Only partitions whose replicas are not all in sync.")
@json_option
@bootstrap_option
def describe(names: tuple[str, ...], under_replicated: bool, as_json: bool, bootstrap_server: str) -> None:
    """Show partitions with leader, replicas and in-sync replicas, as Kafka's own tool does."""
    admin = connect(bootstrap_server)
    described = admin.describe_topics(names or admin.topics(internal=True))
    configs = {topic.name: _changed_configs(admin, topic.name) for topic in described}
    if as_json:
        print_json([_details(topic, configs[topic.name]) for topic in described])
        return
    for topic in described:
        partitions = [p for p in topic.partitions if not under_replicated or len(p.isr) < len(p.replicas)]
        if under_replicated and not partitions:
            continue
        settings = ",".join(f"{name}={value}" for name, value in configs[topic.name].items())
        click.echo(
            f"Topic: {topic.name}\tTopicId: {topic.topic_id}\tPartitionCount: {len(topic.partitions)}\t"
            f"ReplicationFactor: {_replication(topic)}\tConfigs: {settings}"
        )
        for partition in partitions:
            leader = "none" if partition.leader is None else partition.leader
            click.echo(
                f"\tTopic: {topic.name}\tPartition: {partition.partition}\tLeader: {leader}\t"
                f"Replicas: {numbers(partition.replicas)}\tIsr: {numbers(partition.isr)}"
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
@click.argument("name", shell_complete=topic_names)
@click.option("--partitions", type=click.IntRange(min=1), metavar="N", help="Raise the number to N.")
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
    metavar="NAME",
    multiple=True,
    help="Put a setting back to its default; may be repeated.",
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
    if partitions is None and not values and not delete_config:
        raise click.UsageError("nothing to alter: give --partitions, --config or --delete-config")
    admin = connect(bootstrap_server)
    if values or delete_config:
        admin.alter_configs("topic", name, set=values, delete=delete_config)
    if partitions is not None:
        admin.add_partitions(name, partitions)
    click.echo(f"altered topic {name}")


@topics.command(
    epilog=example("barnabas topics delete orders\nbarnabas topics delete old-1 old-2 --if-exists"),
)
@click.argument("names", nargs=-1, required=True, shell_complete=topic_names)
@click.option("--if-exists", is_flag=True, help="Be content when a topic is not there.")
@bootstrap_option
def delete(names: tuple[str, ...], if_exists: bool, bootstrap_server: str) -> None:
    """Delete topics with all their records. There is no way back."""
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
            click.echo(f"there is no topic {name}")
        else:
            click.echo(f"deleted topic {name}")


def _parse_assignment(text: str | None) -> list[list[int]] | None:
    if text is None:
        return None
    try:
        return [[int(broker) for broker in replicas.split(":")] for replicas in text.split(",")]
    except ValueError:
        raise click.UsageError(
            f"--replica-assignment {text}: write broker ids as 1:2,2:3 (two partitions of two replicas)"
        ) from None


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


def _details(topic: TopicDescription, configs: dict[str, str | None]) -> dict[str, Any]:
    partitions: Sequence[dict[str, Any]] = [
        {
            "partition": partition.partition,
            "leader": partition.leader,
            "replicas": list(partition.replicas),
            "isr": list(partition.isr),
        }
        for partition in topic.partitions
    ]
    return {**_summary(topic), "configs": configs, "partitions": partitions}
