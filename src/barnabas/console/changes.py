"""Makes the changes that pages request. The console shows the equivalent command of each change first."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.base.types import TopicPartition
from barnabas.client.consumer_groups import offsets_of_groups
from barnabas.client.offset_calls import EARLIEST, LATEST, offsets_at
from barnabas.console.access_changes import create_rule, delete_rule, delete_user, set_password
from barnabas.console.change import Change, ChangeFields, must_confirm, number_of, text_of
from barnabas.console.pages.query import QueryError
from barnabas.console.pages.schemas import NO_REGISTRY
from barnabas.console.schema_changes import delete_schema, register_schema, set_compatibility
from barnabas.console.schemas import Schemas
from barnabas.console.sending import produce, redrive
from barnabas.console.view import ClusterView

#: the last moment that a date has (the year 9999), in milliseconds since 1970
_LAST_MS = 253_402_300_799_999


def change(view: ClusterView, registry: Schemas | None, fields: ChangeFields) -> Change:
    """Return the change that a page requests, without making it.

    `fields` has the fields of a page's form. The field ``do`` is the kind of the change, such as
    "create-topic"; the other fields depend on the kind. `registry` is None if the console has no schema
    registry. A change of schemas then raises QueryError.

    Raises:
        QueryError: a field is missing or invalid.
        UnfitError, SchemaError, SchemaNameError: a schema cannot encode a value.
        KafkaError, ClientError, RegistryError: the cluster or the registry does not return data that the
            change needs.
    """
    do = text_of(fields, "do")
    if do in _OF_SCHEMAS:
        if registry is None:
            raise QueryError(NO_REGISTRY)
        return _OF_SCHEMAS[do](registry, fields)
    if do == "produce":
        return produce(view, registry, fields)
    make = _CHANGES.get(do)
    if make is None:
        raise QueryError(f"do={do[:40]}: write one of {', '.join([*_CHANGES, 'produce', *_OF_SCHEMAS])}")
    return make(view, fields)


def _create_topic(view: ClusterView, fields: ChangeFields) -> Change:
    name = text_of(fields, "topic")
    partitions = number_of(fields, "partitions", 1, 100_000)
    replicas = number_of(fields, "replicas", 1, 2**15 - 1)
    configs = fields.get("configs") or {}
    if not isinstance(configs, dict) or not all(isinstance(v, str) for v in configs.values()):
        raise QueryError("configs: write an object of texts")
    command = ["topics", "create", name]
    if partitions is not None:
        command += ["--partitions", str(partitions)]
    if replicas is not None:
        command += ["--replication-factor", str(replicas)]
    for key, value in configs.items():
        command += ["--config", f"{key}={value}"]
    return Change(
        command,
        lambda: view.admin.create_topic(name, partitions, replication_factor=replicas, configs=configs),
    )


def _delete_topic(view: ClusterView, fields: ChangeFields) -> Change:
    name = text_of(fields, "topic")
    must_confirm(fields, name, "its records are deleted with the topic")
    return Change(["topics", "delete", name], lambda: view.admin.delete_topic(name))


def _add_partitions(view: ClusterView, fields: ChangeFields) -> Change:
    name, total = text_of(fields, "topic"), number_of(fields, "partitions", 1, 100_000)
    if total is None:
        raise QueryError("partitions: how many the topic is to have")
    return Change(
        ["topics", "alter", name, "--partitions", str(total)],
        lambda: view.admin.add_partitions(name, total),
    )


def _set_config(view: ClusterView, fields: ChangeFields) -> Change:
    name, setting, value = text_of(fields, "topic"), text_of(fields, "setting"), fields.get("value")
    if value is None:
        return Change(
            ["topics", "alter", name, "--delete-config", setting],
            lambda: view.admin.alter_configs("topic", name, delete=[setting]),
        )
    return Change(
        ["topics", "alter", name, "--config", f"{setting}={value}"],
        lambda: view.admin.alter_configs("topic", name, set={setting: str(value)}),
    )


def _reset_offsets(view: ClusterView, fields: ChangeFields) -> Change:
    group, topic = text_of(fields, "group"), text_of(fields, "topic")
    to = text_of(fields, "to")
    numbers = _partitions(fields)
    leaders = {
        p: leader for p, leader in view.leaders([topic]).items() if numbers is None or p.partition in numbers
    }
    if not leaders:
        raise QueryError(f"topic={topic[:40]}: it has no such partitions")
    is_share = view.admin.describe_group(group).type == "share"
    before = _starts(view, group) if is_share else offsets_of_groups(view.brokers, [group])[group]
    starts, ends = offsets_at(view.brokers, leaders, EARLIEST), offsets_at(view.brokers, leaders, LATEST)
    after, option = _targets(view, fields, to, leaders, before, starts, ends)
    after = {p: min(max(offset, starts[p]), ends[p]) for p, offset in after.items() if p in ends}
    where = topic if numbers is None else f"{topic}:{','.join(map(str, sorted(numbers)))}"
    return Change(
        ["groups", "reset-offsets", group, "--topic", where, *option, "--execute"],
        lambda: (view.admin.set_share_offsets if is_share else view.admin.set_group_offsets)(group, after),
        [
            {"topic": p.topic, "partition": p.partition, "from": before.get(p), "to": offset}
            for p, offset in sorted(after.items())
        ],
    )


def _starts(view: ClusterView, group: str) -> dict[TopicPartition, int]:
    """Return the start offsets of a share group in the partitions that have one."""
    offsets = view.admin.share_offsets(group)
    return {p: offset.start for p, offset in offsets.items() if offset.start is not None}


def _targets(
    view: ClusterView,
    fields: ChangeFields,
    to: str,
    leaders: dict[TopicPartition, int],
    before: dict[TopicPartition, int],
    starts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
) -> tuple[dict[TopicPartition, int], list[str]]:
    if to == "earliest":
        return starts, ["--to-earliest"]
    if to == "latest":
        return ends, ["--to-latest"]
    at = number_of(fields, "at", *((0, _LAST_MS) if to == "time" else (-(2**63), 2**63 - 1)))
    if at is None:
        raise QueryError("at: write a whole number")
    if to == "offset":
        return dict.fromkeys(leaders, at), ["--to-offset", str(at)]
    if to == "shift":
        return {p: offset + at for p, offset in before.items() if p in leaders}, ["--shift-by", str(at)]
    if to == "time":
        found = offsets_at(view.brokers, leaders, at)
        seconds = at / 1000
        from datetime import UTC, datetime

        text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
        return {p: o if o >= 0 else ends[p] for p, o in found.items()}, ["--to-datetime", text]
    raise QueryError(f"to={to[:40]}: write earliest, latest, offset, shift or time")


def _partitions(fields: ChangeFields) -> list[int] | None:
    """Return the field ``partitions`` of a page's form; None, for all partitions, if there is no such field.

    Raises QueryError if the field is not a list of whole numbers.
    """
    numbers = fields.get("partitions")
    if numbers is None:
        return None
    if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
        raise QueryError("partitions: write a list of whole numbers")
    return numbers


_CHANGES: dict[str, Callable[[ClusterView, ChangeFields], Change]] = {
    "create-topic": _create_topic,
    "delete-topic": _delete_topic,
    "add-partitions": _add_partitions,
    "set-config": _set_config,
    "redrive": redrive,
    "reset-offsets": _reset_offsets,
    "set-password": set_password,
    "delete-user": delete_user,
    "create-rule": create_rule,
    "delete-rule": delete_rule,
}
_OF_SCHEMAS: dict[str, Callable[[Schemas, ChangeFields], Change]] = {
    "register-schema": register_schema,
    "set-compatibility": set_compatibility,
    "delete-schema": delete_schema,
}
