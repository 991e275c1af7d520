"""The brokers: who leads and follows what, their log directories, their settings, and moves under way."""

from __future__ import annotations

from itertools import islice
from typing import Any

from barnabas.client.errors import ClientError
from barnabas.console.pages.query import Query
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
    sizes = view.sizes()
    moves, problem = _moves(view)
    return {
        "brokers": [
            {
                "id": broker.node_id,
                "address": f"{broker.host}:{broker.port}",
                "rack": broker.rack,
                "controller": broker.node_id == controller,
                "log_dirs": _directories(sizes.get(broker.node_id)),
            }
            for broker in sorted(metadata.brokers, key=lambda broker: int(broker.node_id))
        ],
        "matrix": [*islice(matrix, _ROWS)],
        "matrix_of": sum(len(topic.partitions) for topic in metadata.topics),
        "moves": moves,
        "moves_problem": problem,
    }


def _directories(told: Any) -> dict[str, Any]:
    if told is None or isinstance(told, str):
        return {"directories": [], "problem": told}
    return {
        "directories": [
            {
                "path": each.log_dir,
                "error": each.error_code or None,
                "replicas": sum(len(topic.partitions) for topic in each.topics),
                "bytes": sum(p.partition_size for topic in each.topics for p in topic.partitions),
                "total_bytes": each.total_bytes if each.total_bytes >= 0 else None,
                "free_bytes": each.usable_bytes if each.usable_bytes >= 0 else None,
            }
            for each in told
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
