"""`barnabas groups`: consumer groups and share groups, their lag and their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.complete import group_names, topic_names
from barnabas.cli.options import (
    INT64,
    NAME,
    OFFSET,
    AnyCase,
    bootstrap_option,
    connect,
    example,
    json_option,
    names_argument,
    require_unique,
)
from barnabas.cli.output import print_json, print_listing, print_rows, print_table
from barnabas.cli.streams import report

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.base.types import JsonObject, TopicPartition
    from barnabas.client import Admin
    from barnabas.client.admin_types import GroupDescription, GroupMember
    from barnabas.client.share_groups import InFlight


#: the fields of a partition that `describe` shows
_COLUMNS = ("topic", "partition", "current", "end", "lag", "client", "host")
_SHARE_COLUMNS = (
    "topic",
    "partition",
    "start",
    "lag",
    "members",
    "locked",
    "waiting",
    "deliveries",
    "unlocks",
)
#: consumers that a message names
_NAMED = 3
_STATES = (
    "Stable",
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Dead",
)


@click.group()
def groups() -> None:
    """Consumer groups and share groups: list, describe with lag, reset offsets, delete."""


@groups.command(
    "list", epilog=example("barnabas groups list\nbarnabas groups list --state Empty --type consumer --json")
)
@click.option(
    "--state",
    type=AnyCase(_STATES),
    metavar="STATE",
    help=f"Only groups in this state: {', '.join(_STATES)}.",
)
@click.option(
    "--type",
    "kind",
    type=click.Choice(["classic", "consumer", "share"], case_sensitive=False),
    help="Only groups of this type.",
)
@json_option
@bootstrap_option
def list_groups(state: str | None, kind: str | None, as_json: bool, bootstrap_server: str) -> None:
    """List the consumer groups and share groups of the cluster."""
    rows = [
        {"group": item.group, "type": item.type, "state": item.state}
        for item in connect(bootstrap_server).groups()
        if (state is None or item.state.lower() == state.lower()) and kind in (None, item.type)
    ]
    columns = {"GROUP": "group", "TYPE": "type", "STATE": "state"}
    print_listing(columns, rows, as_json=as_json, empty="no groups")


@groups.command(
    epilog=example(
        """
        barnabas groups describe billing
        barnabas groups describe billing --members
        barnabas groups describe billing --json | jq .lag
        """,
        "LAG is the number of records that the group has not read yet: END minus CURRENT. The table has all "
        "partitions of the group's topics. The lag of a partition without an offset is -: there "
        "auto.offset.reset decides where the group starts. For a share group, all records below START are "
        "finished, and LAG is the number of records that are not finished yet. LOCKED is the number of "
        "records that members have locked. UNLOCKS is the time until the first of these locks ends. WAITING "
        "is the number of records that wait for another delivery. DELIVERIES is the highest delivery count "
        "of all these records. These four are - if no member reads the partition, and on Apache Kafka.",
    )
)
@click.argument("group", type=NAME, shell_complete=group_names)
@click.option("--members", is_flag=True, help="Show the members instead of the offsets.")
@json_option
@bootstrap_option
def describe(group: str, members: bool, as_json: bool, bootstrap_server: str) -> None:
    """Show offset, lag and member of each partition of GROUP."""
    from barnabas.base.errors import ErrorCode, KafkaError

    admin = connect(bootstrap_server)
    description = admin.describe_group(group)
    if description.state == "Dead":
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group}")
    is_share = description.type == "share"
    partitions = (_share_progress if is_share else _progress)(admin, group, description.members)
    lags = [entry["lag"] for entry in partitions if entry["lag"] is not None]
    if as_json:
        print_json(
            {
                "group": group,
                "type": description.type,
                "state": description.state,
                "epoch": description.epoch,
                "target_epoch": description.target_epoch,
                "assignor": description.assignor,
                "coordinator": description.coordinator,
                "lag": sum(lags),
                "partitions": partitions,
                "members": [_member(member) for member in description.members],
            }
        )
    elif members:
        click.echo(f"group {group} is {description.state}, {len(description.members)} members")
        _print_members(description)
    else:
        click.echo(
            f"group {group} is {description.state}, {len(description.members)} members, lag {sum(lags)}"
        )
        names: tuple[str, ...] = _COLUMNS
        if is_share:
            names = _SHARE_COLUMNS
            partitions = [_share_row(each) for each in partitions]
        print_rows({name.upper(): name for name in names}, partitions)


@groups.command(
    "reset-offsets",
    epilog=example(
        """
        barnabas groups reset-offsets billing --topic orders --to-earliest
        barnabas groups reset-offsets billing --topic orders --to-datetime 2026-01-31T12:00 --execute
        barnabas groups reset-offsets billing --topic orders:0,2 --to-offset 42 --execute
        barnabas groups reset-offsets billing --all-topics --shift-by -100 --execute
        """,
        "Without --execute the command only shows the new offsets. Stop the group's consumers first. The "
        "command replaces an offset before a partition's first record or beyond its end by the nearest one, "
        "with a line on stderr.",
    ),
)
@click.argument("group", type=NAME, shell_complete=group_names)
@click.option(
    "--topic",
    "topics",
    metavar="NAME[:P,P...]",
    type=NAME,
    multiple=True,
    shell_complete=topic_names,
    help="A topic, or some of its partitions; may be repeated.",
)
@click.option("--all-topics", is_flag=True, help="All partitions for which the group has offsets.")
@click.option("--to-earliest", is_flag=True, help="To the first record.")
@click.option("--to-latest", is_flag=True, help="To the end, after the last record.")
@click.option("--to-offset", type=OFFSET, help="To this offset.")
@click.option("--shift-by", type=INT64, help="Forward by N, or back by -N.")
@click.option("--to-datetime", metavar="WHEN", help="To the first record at or after an ISO 8601 time.")
@click.option("--by-duration", metavar="TIME", help="To the first record of the last 90s, 10m, 2h, 1d ...")
@click.option("--dry-run", is_flag=True, help="Only show the changes, as without --execute.")
@click.option("--execute", is_flag=True, help="Change the offsets.")
@json_option
@bootstrap_option
def reset_offsets(
    group: str,
    topics: tuple[str, ...],
    all_topics: bool,
    dry_run: bool,
    execute: bool,
    as_json: bool,
    bootstrap_server: str,
    **target: Any,
) -> None:
    """Change the offsets at which GROUP continues."""
    from barnabas.base.errors import ErrorCode, KafkaError
    from barnabas.cli.offset_targets import Target

    if dry_run and execute:
        raise click.UsageError("choose --dry-run or --execute")
    chosen = Target.from_options(**target)
    if bool(topics) == all_topics:
        raise click.UsageError("name the partitions: --topic NAME (may be repeated) or --all-topics")
    admin = connect(bootstrap_server)
    description = admin.describe_group(group)
    is_share = description.type == "share"
    offsets: Mapping[TopicPartition, int | None]
    offsets = _starts(admin, group) if is_share else admin.group_offsets(group)
    committed = {partition: offset for partition, offset in offsets.items() if offset is not None}
    partitions = sorted(offsets) if all_topics else _partitions(admin, topics)
    if not partitions:
        raise click.UsageError(f"group {group} has no offsets: name its topics with --topic")
    refusal = _refusal(description)
    if execute and refusal:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, refusal)
    wanted = chosen.offsets(admin, partitions, committed)
    if execute:
        try:
            (admin.set_share_offsets if is_share else admin.set_group_offsets)(group, wanted)
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_MEMBER_ID:
                raise
            # a consumer has joined meanwhile
            refusal = _refusal(admin.describe_group(group))
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, refusal or error.message) from None
    changes = [
        {**partition._asdict(), "current": committed.get(partition), "new": offset}
        for partition, offset in sorted(wanted.items())
    ]
    if as_json:
        print_json({"group": group, "executed": execute, "offsets": changes})
        if refusal:
            click.echo(f"--execute would be refused: {refusal}", err=True)
        return
    print_table(["TOPIC", "PARTITION", "CURRENT", "NEW"], [tuple(change.values()) for change in changes])
    if refusal:
        click.echo(f"nothing has been changed, and --execute would be refused: {refusal}", err=True)
    elif not execute:
        click.echo("nothing has been changed: add --execute to do it", err=True)


def _refusal(description: GroupDescription) -> str | None:
    """Return the reason why the broker would refuse to change the group's offsets; None if it would not."""
    group = description.group
    if not description.members:
        return None
    consumers = sorted({f"{member.client_id} at {member.host}" for member in description.members})
    named = ", ".join(consumers[:_NAMED]) + (" ..." if len(consumers) > _NAMED else "")
    count = len(description.members)
    members = "1 member" if count == 1 else f"{count} members"
    return (
        f"group {group} is {description.state} and has {members} ({named}): stop its consumers, and wait "
        "until it is Empty (a consumer that was killed leaves after its session timeout)"
    )


@groups.command(epilog=example("barnabas groups delete billing"))
@names_argument("GROUP...", group_names)
@bootstrap_option
def delete(names: tuple[str, ...], bootstrap_server: str) -> None:
    """Delete groups with their offsets. Their consumers must be stopped."""
    from barnabas.base.errors import KafkaError

    admin = connect(bootstrap_server)
    for position, name in enumerate(names):
        try:
            admin.delete_group(name)
        except KafkaError as error:
            rest = ", ".join(names[position + 1 :])
            raise KafkaError(error.code, error.message + (f" (not tried: {rest})" if rest else "")) from None
        report(f"deleted group {name}")


def _print_members(description: GroupDescription) -> None:
    head = ["MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"]
    rows: list[tuple[Any, ...]] = [
        (member.member_id, member.instance_id, member.client_id, member.host, _shown(member.assignment))
        for member in description.members
    ]
    if description.type == "share":
        click.echo(f"epoch {description.epoch}, target of epoch {description.target_epoch}")
        head.append("EPOCH")
        rows = [(*row, member.epoch) for row, member in zip(rows, description.members, strict=True)]
    if description.type == "consumer":  # each follows the target at its own pace
        click.echo(f"epoch {description.epoch}, target of epoch {description.target_epoch}")
        head += ["PROTOCOL", "EPOCH", "TARGET"]
        rows = [
            (*row, member.protocol, member.epoch, _shown(member.target or ()))
            for row, member in zip(rows, description.members, strict=True)
        ]
    print_table(head, rows)


def _shown(partitions: tuple[TopicPartition, ...]) -> str:
    """Return topics with their partitions as text, such as ``orders:0,2 payments:1``."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return " ".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in topics.items()) or "-"


def _progress(admin: Admin, group: str, members: tuple[GroupMember, ...]) -> list[dict[str, Any]]:
    """Return a row for each partition of the group's topics, sorted by topic and partition.

    A row has ``topic``, ``partition``, ``current`` (the committed offset), ``end`` (the high watermark) and
    ``lag``. It also has ``member``, ``client`` and ``host`` of the member that reads the partition. A value
    that is unknown, or does not exist, is None.
    """
    from barnabas.client.lag import lag_of

    readers = {partition: member for member in members for partition in member.assignment}
    committed = admin.group_offsets(group)
    partitions = sorted({*committed, *readers} | _whole_topics(admin, {each.topic for each in committed}))
    ends = admin.offsets(partitions, "latest", skip_failed=True)
    lags = lag_of(ends, committed)
    progress = []
    for partition in partitions:
        reader = readers.get(partition)
        progress.append(
            {
                **partition._asdict(),
                "current": committed.get(partition),
                "end": ends.get(partition),
                "lag": lags.get(partition),
                "member": reader.member_id if reader else None,
                "client": reader.client_id if reader else None,
                "host": reader.host if reader else None,
            }
        )
    return progress


def _share_progress(admin: Admin, group: str, members: tuple[GroupMember, ...]) -> list[dict[str, Any]]:
    """Return a row for each partition for which a share group has a state, in no fixed order.

    A row has ``topic``, ``partition``, ``start`` (the start offset), ``lag``, and the values of `_counts`.
    ``members`` has the ids of the members that read the partition. ``in_flight`` has a dict for each range of
    records in flight. A value that is unknown is None.
    """
    sharers: dict[TopicPartition, list[str]] = {}
    for member in members:
        for partition in member.assignment:
            sharers.setdefault(partition, []).append(member.member_id)
    offsets = admin.share_offsets(group)
    in_flight = admin.share_records(group, offsets) or {}
    progress = []
    for partition, offset in offsets.items():
        records = in_flight.get(partition)
        progress.append(
            {
                **partition._asdict(),
                "start": offset.start,
                "lag": offset.lag,
                "members": sharers.get(partition, []),
                "in_flight": None if records is None else [each._asdict() for each in records.batches],
                **_counts(records),
            }
        )
    return progress


def _counts(records: InFlight | None) -> dict[str, int | None]:
    """Return four numbers about a partition's records in flight. All are None if `records` is None.

    - ``locked``: the number of records that a member has acquired.
    - ``waiting``: the number of records that are available again after a delivery.
    - ``deliveries``: how often the most delivered of these records was delivered; 0 if there are none.
    - ``unlocks_ms``: milliseconds until the first lock ends; None if there is no lock.
    """
    if records is None:
        return dict.fromkeys(("locked", "waiting", "deliveries", "unlocks_ms"))
    unfinished = [each for each in records.batches if each.state in ("available", "acquired")]
    return {
        "locked": records.count("acquired"),
        "waiting": sum(each.size for each in records.waiting_again),
        "deliveries": max((each.deliveries for each in unfinished), default=0),
        "unlocks_ms": min((each.lock_ms for each in unfinished if each.lock_ms is not None), default=None),
    }


def _share_row(progress: dict[str, Any]) -> dict[str, Any]:
    """Return a partition of `_share_progress` as a row of the table."""
    unlocks_ms = progress["unlocks_ms"]
    return {
        **progress,
        "members": len(progress["members"]),
        "unlocks": None if unlocks_ms is None else f"{unlocks_ms / 1000:.1f} s",
    }


def _starts(admin: Admin, group: str) -> dict[TopicPartition, int | None]:
    """Return the start offsets of a share group; None for a partition without one."""
    return {partition: offset.start for partition, offset in admin.share_offsets(group).items()}


def _whole_topics(admin: Admin, topics: set[str]) -> set[TopicPartition]:
    """Return all partitions of those `topics` that exist."""
    from barnabas.base.types import TopicPartition

    there = sorted(topics.intersection(admin.topics(internal=True)))
    described = admin.describe_topics(there)
    return {TopicPartition(topic.name, each.partition) for topic in described for each in topic.partitions}


def _partitions(admin: Admin, topics: tuple[str, ...]) -> list[TopicPartition]:
    from barnabas.base.types import TopicPartition

    chosen = []
    for text in topics:
        name, colon, numbers = text.partition(":")
        wanted = _numbers(text, numbers) if colon else None
        [topic] = admin.describe_topics([name])
        there = [partition.partition for partition in topic.partitions]
        absent = [number for number in wanted or () if number not in there]
        if absent:
            raise click.UsageError(
                f"--topic {text}: there is no partition {absent[0]}, the last one is {max(there)}"
            )
        chosen += [TopicPartition(name, number) for number in wanted or there]
    require_unique(map(str, chosen), "--topic names")
    return chosen


def _numbers(text: str, numbers: str) -> list[int]:
    try:
        return [int(number) for number in numbers.split(",")]
    except ValueError:
        raise click.UsageError(f"--topic {text}: write NAME or NAME:0,1,2") from None


def _member(member: GroupMember) -> JsonObject:
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.host,
        "partitions": [partition._asdict() for partition in member.assignment],
        "protocol": member.protocol,
        "epoch": member.epoch,
        "target": None if member.target is None else [each._asdict() for each in member.target],
        "regex": member.regex,
    }
