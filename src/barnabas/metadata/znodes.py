"""Every node of the metadata store: its path and what it holds.

Paths and JSON are those of Apache Kafka on ZooKeeper (its ``ZkData``): who knows one knows the other.

    /cluster/id                                 the cluster's id
    /controller (ephemeral)                     which broker is the controller
    /controller_epoch                           how many controllers there have been
    /brokers/ids/ID (ephemeral)                 a live broker: endpoints, rack, features, state, failed disks
    /brokers/topics/TOPIC                       a topic's id and each partition's replicas
    /brokers/topics/TOPIC/partitions/P/state    a partition's leader, epochs and ISR
    /config/topics/TOPIC                        what is set for a topic
    /config/brokers/ID or <default>             what is set for a broker, for all
    /config/groups/GROUP                        what is set for a group, whose id is percent-encoded
    /feature                                    the level at which each feature is used
    /latest_producer_id_block                   the producer ids handed out last
    /admin/delete_topics/TOPIC_ID               a topic that is gone, whose folders may still lie somewhere
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote

from barnabas.metadata.image import BrokerEndpoint, BrokerImage, BrokerState, PartitionState
from barnabas.metadata.store import Node
from barnabas.types import BrokerId, LeaderEpoch, TopicId, topic_id_from_str, topic_id_to_str

CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
GROUP_CONFIGS = "/config/groups"
FEATURES = "/feature"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
DELETED_TOPICS = "/admin/delete_topics"

#: nodes that hold nothing and are always there
FOLDERS = (
    "/cluster",
    "/brokers",
    BROKER_IDS,
    TOPICS,
    "/config",
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    "/admin",
    DELETED_TOPICS,
)


def broker(broker_id: BrokerId) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions(topic_name: str) -> str:
    return f"{TOPICS}/{topic_name}/partitions"


def partition(topic_name: str, number: int) -> str:
    return f"{TOPICS}/{topic_name}/partitions/{number}"


def partition_state(topic_name: str, number: int) -> str:
    return f"{TOPICS}/{topic_name}/partitions/{number}/state"


def topic_config(name: str) -> str:
    return f"{TOPIC_CONFIGS}/{name}"


def broker_config(name: str) -> str:
    """`name` is a broker's id or ``<default>``."""
    return f"{BROKER_CONFIGS}/{name}"


def group_config(group_id: str) -> str:
    return f"{GROUP_CONFIGS}/{quote(group_id, safe='')}"


def deleted_topic(topic_id: TopicId) -> str:
    return f"{DELETED_TOPICS}/{topic_id_to_str(topic_id)}"


def encode_cluster_id(cluster_id: str) -> bytes:
    return _dump({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    return str(json.loads(data)["id"])


def encode_controller(broker_id: BrokerId, now_ms: int) -> bytes:
    return _dump({"version": 1, "brokerid": broker_id, "timestamp": str(now_ms)})


def decode_controller(data: bytes) -> BrokerId:
    return int(json.loads(data)["brokerid"])


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    return int(data)


def encode_broker(image: BrokerImage, now_ms: int) -> bytes:
    first = image.endpoints[0]
    return _dump(
        {
            "version": 5,
            "host": first.host,
            "port": first.port,
            "jmx_port": -1,
            "timestamp": str(now_ms),
            "endpoints": [f"{e.listener}://{_bracketed(e.host)}:{e.port}" for e in image.endpoints],
            "listener_security_protocol_map": {e.listener: e.security_protocol for e in image.endpoints},
            "rack": image.rack,
            "features": {
                name: {"min_version": lowest, "max_version": highest}
                for name, (lowest, highest) in image.features.items()
            },
            "state": image.state.value,
            "failed_log_dirs": image.failed_log_dirs,
            "previous_epoch": image.previous_epoch,
        }
    )


def decode_broker(broker_id: BrokerId, node: Node) -> BrokerImage:
    value = json.loads(node.data)
    protocols = value["listener_security_protocol_map"]
    endpoints = []
    for text in value["endpoints"]:
        listener, _, address = text.partition("://")
        host, _, port = address.rpartition(":")
        endpoints.append(BrokerEndpoint(listener, host.strip("[]"), int(port), protocols[listener]))
    features = value.get("features") or {}
    return BrokerImage(
        broker_id,
        tuple(endpoints),
        value["rack"],
        epoch=node.created,
        state=BrokerState(value.get("state", BrokerState.RUNNING.value)),
        features={name: (each["min_version"], each["max_version"]) for name, each in features.items()},
        failed_log_dirs=tuple(value.get("failed_log_dirs", ())),
        previous_epoch=value.get("previous_epoch", -1),
    )


class Assignment(NamedTuple):
    """A topic's id and who holds its partitions, in the order of their numbers."""

    topic_id: TopicId
    replicas: Sequence[tuple[BrokerId, ...]]


def encode_topic(assignment: Assignment) -> bytes:
    return _dump(
        {
            "version": 3,
            "topic_id": topic_id_to_str(assignment.topic_id),
            "partitions": {str(number): replicas for number, replicas in enumerate(assignment.replicas)},
            "adding_replicas": {},
            "removing_replicas": {},
        }
    )


def decode_topic(data: bytes) -> Assignment:
    value = json.loads(data)
    by_number = value["partitions"]
    shared: dict[tuple[BrokerId, ...], tuple[BrokerId, ...]] = {}
    replicas = (tuple(by_number[str(number)]) for number in range(len(by_number)))
    return Assignment(topic_id_from_str(value["topic_id"]), [shared.setdefault(r, r) for r in replicas])


def encode_partition_state(state: PartitionState, controller_epoch: int) -> bytes:
    return _encoded_state(state.isr, state.leader, state.leader_epoch, controller_epoch)


@lru_cache(maxsize=4096)
def _encoded_state(
    isr: tuple[BrokerId, ...], leader: BrokerId, leader_epoch: LeaderEpoch, controller_epoch: int
) -> bytes:
    # Shared by the partitions that have the same state: most of a topic's.
    return _dump(
        {
            "version": 1,
            "controller_epoch": controller_epoch,
            "leader": leader,
            "leader_epoch": leader_epoch,
            "isr": isr,
        }
    )


def decode_partition_state(replicas: tuple[BrokerId, ...], node: Node) -> PartitionState:
    return _partition_state(replicas, node.data, node.version)


@lru_cache(maxsize=4096)
def _partition_state(replicas: tuple[BrokerId, ...], data: bytes, version: int) -> PartitionState:
    # Partitions with the same state share it: most of a topic's have. Another state has another version.
    value = json.loads(data)
    return PartitionState(
        replicas, tuple(value["isr"]), value["leader"], value["leader_epoch"], partition_epoch=version
    )


def encode_deleted_topic(brokers: Iterable[BrokerId]) -> bytes:
    return _dump({"version": 1, "brokers": sorted(brokers)})


def decode_deleted_topic(data: bytes) -> frozenset[BrokerId]:
    """The brokers that may still have folders of the topic."""
    return frozenset(json.loads(data)["brokers"])


def encode_config(config: Mapping[str, str]) -> bytes:
    return _dump({"version": 1, "config": config})


def decode_config(data: bytes) -> dict[str, str]:
    config: dict[str, str] = json.loads(data)["config"]
    return config


def encode_features(levels: Mapping[str, int]) -> bytes:
    return _dump({"version": 2, "status": 1, "features": levels})


def decode_features(data: bytes) -> dict[str, int]:
    levels: dict[str, int] = json.loads(data)["features"]
    return levels


def encode_producer_id_block(broker_id: BrokerId, first: int, last: int) -> bytes:
    return _dump({"version": 1, "broker": broker_id, "block_start": str(first), "block_end": str(last)})


def decode_producer_id_block(data: bytes) -> tuple[int, int]:
    """The first and the last id of the block handed out last."""
    value = json.loads(data)
    return int(value["block_start"]), int(value["block_end"])


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _dump(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
