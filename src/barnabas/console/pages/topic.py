"""The page of one topic: its partitions, settings, and the groups that read it."""

from __future__ import annotations

from typing import Any

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.client.errors import ClientError, error_text
from barnabas.client.lag import lag_of
from barnabas.client.offset_calls import EARLIEST, LATEST, offsets_at
from barnabas.console.pages.query import Query, choice
from barnabas.console.view import ClusterView

#: how many partitions are listed
_MAX_PARTITIONS = 1000


def described(view: ClusterView, name: str) -> Any:
    """Return a topic's part of a MetadataResponse. Raises KafkaError if there is no such topic."""
    for topic in view.metadata().topics:
        if topic.name == name:
            return topic
    return found_in(view.metadata([name]), name)


def found_in(metadata: Any, name: str) -> Any:
    """Return the only topic in `metadata`, a MetadataResponse to a request for the topic `name`.

    Raises KafkaError if the topic does not exist.
    """
    for topic in metadata.topics:
        if not topic.error_code:
            return topic
    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")


def topic(view: ClusterView, name: str, query: Query) -> dict[str, Any]:
    """Return the data of a topic's page. Query: ``brief`` (no, yes) for the topic's metadata only.

    Raises KafkaError if there is no such topic.
    """
    is_brief = choice(query, "brief", ("no", "yes")) == "yes"
    # Of a large cluster all metadata is megabytes.
    found = found_in(view.metadata([name]), name) if is_brief else described(view, name)
    about = {
        "name": name,
        "id": found.topic_id.hex() if any(found.topic_id) else None,
        "internal": found.is_internal,
        "partition_count": len(found.partitions),
    }
    if is_brief:
        return about
    leaders = {p: leader for p, leader in view.leaders([name]).items() if p.partition < _MAX_PARTITIONS}
    starts, ends = offsets_at(view.brokers, leaders, EARLIEST), offsets_at(view.brokers, leaders, LATEST)
    stable = offsets_at(view.brokers, leaders, LATEST, committed=True)
    view.rates.note(ends)
    sizes = view.topic_sizes([name])
    groups = []
    for group, offsets in view.committed().items():
        own = {p: offset for p, offset in offsets.items() if p.topic == name}
        if own:
            groups.append({"group": group, "lag": sum(lag_of(ends, own).values())})
    partitions = sorted(found.partitions, key=lambda p: int(p.partition_index))
    return {
        **about,
        "rate": view.rates.of(name),
        "rates": view.rates.history(name, view.clock.now_ms()),
        "partitions": [
            {
                "partition": partition.partition,
                "leader": p.leader_id if p.leader_id >= 0 else None,
                "leader_epoch": p.leader_epoch,
                "replicas": p.replica_nodes,
                "in_sync": p.isr_nodes,
                "start": starts.get(partition),
                "end": ends.get(partition),
                "stable": stable.get(partition),
                "bytes": sizes.get(partition, 0),
            }
            for p in partitions[:_MAX_PARTITIONS]
            for partition in [TopicPartition(name, p.partition_index)]
        ],
        "groups": sorted(groups, key=lambda each: (-each["lag"], each["group"])),
        **settings_of(view, "topic", name),
    }


def settings_of(view: ClusterView, kind: str, name: str) -> dict[str, Any]:
    """Return the settings of a topic or a broker for a page, as the list ``settings``.

    Each setting has ``name``, ``value``, ``source``, ``is_default``, ``read_only`` and ``sensitive``. The
    value of a secret is None. If the settings cannot be read, the list is empty, and ``settings_problem`` is
    the text of the error; else it is None.

    Args:
        kind: "topic" or "broker".
        name: name of the topic, or id of the broker.
    """
    try:
        values = view.admin.configs(kind, name)
    except (ClientError, KafkaError) as error:
        return {"settings": [], "settings_problem": error_text(error)}
    rows = [
        {
            "name": v.name,
            "value": None if v.sensitive else v.value,
            "source": v.source,
            "is_default": v.is_default,
            "read_only": v.read_only,
            "sensitive": v.sensitive,
        }
        for v in values
    ]
    return {"settings": rows, "settings_problem": None}
