"""The overview page: brokers, offline and under-replicated partitions, rates, the largest lags, events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from barnabas.client.lag import lag_of
from barnabas.console.events import ClusterSnapshot
from barnabas.console.pages.brokers import members_of
from barnabas.console.pages.query import Query
from barnabas.console.view import ClusterView

#: how many partitions and groups are named
_NAMED, _GROUPS = 50, 10
#: how many events are shown
_EVENTS = 20


def overview(view: ClusterView, query: Query) -> dict[str, Any]:
    """Return the data of the overview page: brokers, problems of partitions, rates, largest lags, events.

    Add changes of the cluster since the last call to `view.events`.
    """
    metadata = view.metadata()
    totals = view.totals()
    groups, problem = view.groups()
    committed, ends = view.committed(), view.committed_ends()
    lag = {group: sum(lag_of(ends, offsets).values()) for group, offsets in committed.items() if offsets}
    leads: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    in_sync: Counter[int] = Counter()
    offline, under_replicated = [], []
    for topic in sorted(metadata.topics, key=lambda topic: topic.is_internal):  # few are named: users' first
        for p in topic.partitions:
            leads[p.leader_id] += 1
            for node in p.replica_nodes:  # `Counter.update` takes ten times as long
                replicas[node] += 1
            for node in p.isr_nodes:
                in_sync[node] += 1
            if p.leader_id < 0:
                offline.append(f"{topic.name}-{p.partition_index}")
            if len(p.isr_nodes) < len(p.replica_nodes):
                under_replicated.append(f"{topic.name}-{p.partition_index}")
    controller = view.controller()
    seen = ClusterSnapshot(
        frozenset(broker.node_id for broker in metadata.brokers),
        controller,
        frozenset(topic.name for topic in metadata.topics if not topic.is_internal),
        frozenset(offline),
        frozenset(under_replicated),
    )
    view.events.look(view.clock.now_ms(), seen)
    return {
        "cluster": metadata.cluster_id,
        "controller": controller,
        "brokers": [
            {
                **member._asdict(),
                "controller": member.id == controller,
                "leads": leads[member.id],
                "replicas": replicas[member.id],
                "in_sync": in_sync[member.id],
            }
            for member in members_of(view.brokers, metadata, replicas)
        ],
        **_counted(metadata.topics),
        "internal": _counted([topic for topic in metadata.topics if topic.is_internal]),
        "offline": {"count": len(offline), "names": offline[:_NAMED]},
        "under_replicated": {"count": len(under_replicated), "names": under_replicated[:_NAMED]},
        "events": [event._asdict() for event in view.events.recent()[:_EVENTS]],
        "records_a_second": view.rates.total(),
        "rate_age_s": totals.age_s,
        "rates": view.rates.history("", view.clock.now_ms()),
        "groups": {"count": len(groups), "looked_at": len(committed), "problem": problem},
        "lags": [
            {"group": group, "lag": behind}
            for group, behind in sorted(lag.items(), key=lambda item: (-item[1], item[0]))[:_GROUPS]
        ],
    }


def _counted(topics: Sequence[Any]) -> dict[str, int]:
    return {"topics": len(topics), "partitions": sum(len(topic.partitions) for topic in topics)}
