"""The brokers: what they lead and follow, their log directories, their settings, and moves under way."""

from __future__ import annotations

from itertools import islice
from typing import Any

from barnabas.client.errors import ClientError
from barnabas.console.pages.query import Query
from barnabas.console.survey import Totals
from barnabas.console.view import ClusterView
from barnabas.errors import KafkaError
from barnabas.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

#: rows of the matrix of leaders and replicas
_ROWS = 500


def brokers(view: ClusterView, query: Query) -> dict[str, Any]:
    """The brokers page."""
    metadata = view.kafka.metadata()
    controller = view.controller()
    matrix = (
        {
            "partition": f"{topic.name}-{p.partition_index}",
            "leader": p.leader_id if p.leader_id >= 0 else None,
            "replicas": p.replica_nodes,
            "in_sync": p.isr_nodes,
        }
        for topic in sorted(metadata.topics, key=lambda topic: str(topic.name))
        for p in sorted(topic.partitions, key=lambda p: int(p.partition_index))
    )
    volumes, totals = view.volumes(), view.totals()
    moves, problem = _moves(view)
    return {
        "brokers": [
            {
                "id": broker.node_id,
                "address": f"{broker.host}:{broker.port}",
                "rack": broker.rack,
                "controller": broker.node_id == controller,
                "log_dirs": _directories(broker.node_id, volumes.get(broker.node_id), totals),
            }
            for broker in sorted(metadata.brokers, key=lambda broker: int(broker.node_id))
        ],
        "matrix": [*islice(matrix, _ROWS)],
        "sizes_age_s": totals.age_s,
        "matrix_of": sum(len(topic.partitions) for topic in metadata.topics),
        "moves": moves,
        "moves_problem": problem,
    }


def _directories(broker: int, told: Any, totals: Totals) -> dict[str, Any]:
    """The content of log directories. None until it is known: large clusters take a while at first."""
    if told is None or isinstance(told, str):
        return {"directories": [], "problem": told}
    return {
        "directories": [
            {
                "path": each.log_dir,
                "error": each.error_code or None,
                "replicas": held.replicas if held else None,
                "bytes": held.bytes if held else None,
                "total_bytes": each.total_bytes if each.total_bytes >= 0 else None,
                "free_bytes": each.usable_bytes if each.usable_bytes >= 0 else None,
            }
            for each in told
            for held in [totals.directories.get((broker, each.log_dir))]
        ],
        "problem": None,
    }


def _moves(view: ClusterView) -> tuple[list[dict[str, Any]], str | None]:
    try:
        response = view.kafka.ask(view.controller(), ListPartitionReassignmentsRequest(topics=None))
    except (ClientError, KafkaError) as error:
        return [], str(error)
    return [
        {
            "partition": f"{topic.name}-{p.partition_index}",
            "replicas": p.replicas,
            "adding": p.adding_replicas,
            "removing": p.removing_replicas,
        }
        for topic in response.topics
        for p in topic.partitions
    ], None


def broker(view: ClusterView, name: str, query: Query) -> dict[str, Any]:
    """A broker's settings, with where each comes from."""
    return {
        "id": int(name),
        "settings": [
            {
                "name": v.name,
                "value": None if v.sensitive else v.value,
                "source": v.source,
                "is_default": v.is_default,
                "read_only": v.read_only,
                "sensitive": v.sensitive,
            }
            for v in view.admin.configs("broker", name)
        ],
    }
