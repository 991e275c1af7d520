"""The page of all topics.

The console searches, sorts and divides the topics, so that the browser gets only fifty of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from barnabas.base.types import TopicPartition
from barnabas.client.lag import lag_of
from barnabas.client.leaders import live_leaders
from barnabas.client.offset_calls import EARLIEST, LATEST, offsets_at
from barnabas.console.pages.query import Listing, Query, choice
from barnabas.console.view import ClusterView

#: Sort keys from metadata. The other sort keys need the totals of all topics.
_KNOWN: dict[str, Callable[[Any], Any]] = {
    "name": lambda topic: str(topic.name),
    "partitions": lambda topic: len(topic.partitions),
}
_SORTED_BY = (*_KNOWN, "records", "bytes", "rate")


def topics(view: ClusterView, query: Query) -> dict[str, Any]:
    """Return the data of the topics page.

    Query: search, sort, order (up, down), page (from 1), internal (no, yes).
    """
    asked = Listing.asked(query, _SORTED_BY)
    with_internal = choice(query, "internal", ("no", "yes")) == "yes"
    metadata = view.metadata()
    found = [
        topic
        for topic in metadata.topics
        if asked.finds(topic.name) and (with_internal or not topic.is_internal)
    ]
    found.sort(key=lambda topic: str(topic.name))
    age: float | None = 0.0
    if asked.sort in _KNOWN:
        found.sort(key=_KNOWN[asked.sort], reverse=asked.is_down)
        rows = {topic.name: _row(topic) for topic in asked.cut(found)}
        _count(view, metadata, rows)
        shown = [*rows.values()]
    else:
        rows = {topic.name: _row(topic) for topic in found}
        age = _count_all(view, rows)
        ordered = sorted(
            rows.values(),
            key=lambda row: row[asked.sort] if row[asked.sort] is not None else -1,
            reverse=asked.is_down,
        )
        shown = [*asked.cut(ordered)]
    _name_groups(view, {row["name"]: row for row in shown})
    return {
        "topics": shown,
        "sorted_by_age_s": age,
        **asked.page_fields(len(found)),
    }


def _row(topic: Any) -> dict[str, Any]:
    partitions = topic.partitions
    return {
        "name": topic.name,
        "internal": topic.is_internal,
        "partitions": len(partitions),
        "replicas": max((len(p.replica_nodes) for p in partitions), default=0),
        "offline": sum(p.leader_id < 0 for p in partitions),
        "under_replicated": sum(len(p.isr_nodes) < len(p.replica_nodes) for p in partitions),
        "records": 0,
        "bytes": 0,
        "rate": None,
        "groups": [],
    }


def _leaders(metadata: Any, rows: Collection[str]) -> dict[TopicPartition, int]:
    return live_leaders(topic for topic in metadata.topics if topic.name in rows)


def _count(view: ClusterView, metadata: Any, rows: dict[str, dict[str, Any]]) -> None:
    """Request the records, bytes and rates of the topics in `rows`, and add these numbers to the rows.

    `rows` has a row for each topic, by name. In each row, ``records`` and ``bytes`` are 0 before the call.
    The function requests no data of other topics.
    """
    leaders = _leaders(metadata, rows)
    starts, ends = offsets_at(view.brokers, leaders, EARLIEST), offsets_at(view.brokers, leaders, LATEST)
    view.rates.note(ends)
    for partition, end in ends.items():  # what compaction has removed counts as records
        rows[partition.topic]["records"] += max(0, end - starts.get(partition, end))
    for partition, size in view.topic_sizes(rows).items():
        rows[partition.topic]["bytes"] += size
    _add_rates(view, rows)


def _count_all(view: ClusterView, rows: dict[str, dict[str, Any]]) -> float | None:
    """Set the records, bytes and rates of the topics in `rows`, from the totals that all pages share.

    `rows` has a row for each topic, by name. Return the age of the totals in seconds; None if the first count
    of all topics has not ended yet.
    """
    totals = view.totals()
    for name, row in rows.items():
        known = totals.topics.get(name)
        if known is not None:
            row["records"], row["bytes"] = known
    _add_rates(view, rows)
    return totals.age_s


def _add_rates(view: ClusterView, rows: dict[str, dict[str, Any]]) -> None:
    for topic, rate in view.rates.by_topic().items():
        if topic in rows:
            rows[topic]["rate"] = rate


def _name_groups(view: ClusterView, rows: dict[str, dict[str, Any]]) -> None:
    ends = offsets_at(view.brokers, _leaders(view.metadata(), rows), LATEST)
    for group, offsets in view.committed().items():
        behind: Counter[str] = Counter()
        for partition, lag in lag_of(ends, offsets).items():
            behind[partition.topic] += lag
        for topic, lag in behind.items():
            rows[topic]["groups"].append({"group": group, "lag": lag})
    for row in rows.values():
        row["groups"] = sorted(row["groups"], key=lambda each: -each["lag"])[:5]
