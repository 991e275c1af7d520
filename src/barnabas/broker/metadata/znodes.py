"""The nodes of the metadata store: their paths and contents.

Paths and JSON are those of Apache Kafka on ZooKeeper (``ZkData``).

    /cluster/id                                 the cluster's id
    /cluster/login_secret                       the secret from which salts of unknown users are derived
    /controller (ephemeral)                     the id of the controller
    /controller_epoch                           the number of controllers so far
    /brokers/ids/ID (ephemeral)                 a live broker: endpoints, rack, features, state, failed disks
    /brokers/epochs                             the last admitted registration of each broker
    /brokers/topics/TOPIC                       a topic's id, each partition's replicas, reassignments
    /brokers/topics/TOPIC/partitions/P/state    a partition's leader, epochs, ISR and ELR
    /config/topics/TOPIC                        a topic's settings
    /config/brokers/ID or <default>             settings of one broker, or of all brokers
    /config/groups/GROUP                        a group's settings; the group's id is percent-encoded
    /config/client-metrics/NAME                 which clients push which metrics; percent-encoded, too
    /config/users/USER                          a user's credentials and quotas; percent-encoded, too
    /config/users/USER/clients/CLIENT           quotas of a user with one client id, percent-encoded
    /config/clients/CLIENT                      quotas of a client id
    /config/ips/ADDRESS                         a quota of an address; <default> is for all other addresses
    /kafka-acl, /kafka-acl-extended             ACLs (`barnabas.broker.metadata.acl_nodes`)
    /delegation_token/tokens/ID                 a delegation token (`barnabas.broker.metadata.token_nodes`)
    /feature                                    the level at which each feature is used
    /latest_producer_id_block                   the last allocated block of producer ids
    /admin/delete_topics/TOPIC_ID               a deletion note: brokers that may have folders of the topic
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, ParamSpec, TypeVar
from urllib.parse import quote, unquote

from barnabas.base.text import quoted
from barnabas.base.types import BrokerId, TopicId, topic_id_from_str, topic_id_to_str
from barnabas.broker.metadata import acl_nodes, token_nodes
from barnabas.broker.metadata.image import (
    Admission,
    BrokerEndpoint,
    BrokerImage,
    BrokerState,
    PartitionState,
    TopicImage,
)
from barnabas.broker.metadata.store import DamagedNodeError, StoreNode
from barnabas.broker.quotas import DEFAULT, Default, QuotaEntity
from barnabas.broker.quotas.entities import Name

_P = ParamSpec("_P")
_V = TypeVar("_V")

CLUSTER_ID = "/cluster/id"
LOGIN_SECRET = "/cluster/login_secret"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
BROKER_EPOCHS = "/brokers/epochs"
TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
GROUP_CONFIGS = "/config/groups"
CLIENT_METRICS_CONFIGS = "/config/client-metrics"
USER_CONFIGS = "/config/users"
#: starts of the paths of nodes that may contain secrets
_SECRET = ("/config/users/", "/config/brokers/", "/delegation_token/", LOGIN_SECRET)
CLIENT_CONFIGS = "/config/clients"
IP_CONFIGS = "/config/ips"
FEATURES = "/feature"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
DELETED_TOPICS = "/admin/delete_topics"

#: permanent nodes without data
FOLDERS = (
    "/cluster",
    "/brokers",
    BROKER_IDS,
    TOPICS,
    "/config",
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    CLIENT_METRICS_CONFIGS,
    USER_CONFIGS,
    CLIENT_CONFIGS,
    IP_CONFIGS,
    "/admin",
    DELETED_TOPICS,
    *acl_nodes.ALL_FOLDERS,
    *token_nodes.ALL_FOLDERS,
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
    """Return the path of a broker's settings. `name` is a broker's id or ``<default>``."""
    return f"{BROKER_CONFIGS}/{name}"


def group_config(group_id: str) -> str:
    return f"{GROUP_CONFIGS}/{quote(group_id, safe='')}"


def client_metrics_config(name: str) -> str:
    return f"{CLIENT_METRICS_CONFIGS}/{quote(name, safe='')}"


def is_secret(path: str) -> bool:
    """Whether a node may have data that only brokers may read: passwords, as salted hashes or plain text."""
    return path.startswith(_SECRET)


def user_config(user: str) -> str:
    return f"{USER_CONFIGS}/{quote(user, safe='')}"


def user_clients(user: Name) -> str:
    """Return the path of a user's ``clients`` node: its children have the quotas of the user's client ids."""
    return f"{USER_CONFIGS}/{_encoded(user)}/clients"


def quota_config(entity: QuotaEntity) -> str:
    """Return the path of the node with an entity's quotas. A user's quotas and credentials share a node."""
    if entity.ip is not None:
        return f"{IP_CONFIGS}/{_encoded(entity.ip)}"
    if entity.user is None:
        return f"{CLIENT_CONFIGS}/{_encoded(entity.client_id)}"
    if entity.client_id is None:
        return f"{USER_CONFIGS}/{_encoded(entity.user)}"
    return f"{user_clients(entity.user)}/{_encoded(entity.client_id)}"


def quota_entity(path: str) -> QuotaEntity | None:
    """Return the entity whose quotas are in the node at `path`; None if the path is not for quotas."""
    match path.split("/"):
        case ["", "config", "users", user]:
            return QuotaEntity(user=_decoded(user))
        case ["", "config", "users", user, "clients", client_id]:
            return QuotaEntity(user=_decoded(user), client_id=_decoded(client_id))
        case ["", "config", "clients", client_id]:
            return QuotaEntity(client_id=_decoded(client_id))
        case ["", "config", "ips", ip]:
            return QuotaEntity(ip=_decoded(ip))
    return None


def _encoded(name: Name) -> str:
    """Percent-encode a name, also ``<`` and ``>``, so that no encoded name is equal to ``<default>``."""
    return name.value if isinstance(name, Default) else quote(name or "", safe="")


def _decoded(name: str) -> Name:
    return DEFAULT if name == DEFAULT.value else unquote(name)


def deleted_topic(topic_id: TopicId) -> str:
    return f"{DELETED_TOPICS}/{topic_id_to_str(topic_id)}"


def encode_cluster_id(cluster_id: str) -> bytes:
    return _dump({"version": "1", "id": cluster_id})


def decoded(path: str, decode: Callable[_P, _V], *args: _P.args, **kwargs: _P.kwargs) -> _V:
    """Return ``decode(*args, **kwargs)``, the decoded data of the node at `path`.

    Raises:
        DamagedNodeError: `decode` cannot decode the data. The error names `path`.
    """
    try:
        return decode(*args, **kwargs)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise DamagedNodeError(
            f"the data of {path} is damaged ({type(error).__name__}: {quoted(str(error))})"
        ) from error


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
            "incarnation": image.incarnation,
            "isolated": image.is_isolated,
            "incomplete_replicas": _by_topic(image.incomplete_replicas),
        }
    )


def _by_topic(partitions: Iterable[tuple[TopicId, int]]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for topic_id, number in sorted(partitions):
        numbers.setdefault(topic_id_to_str(topic_id), []).append(number)
    return numbers


def decode_broker(broker_id: BrokerId, node: StoreNode) -> BrokerImage:
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
        incarnation=value.get("incarnation", ""),
        is_isolated=value.get("isolated", False),
        incomplete_replicas=frozenset(
            (topic_id_from_str(topic_id), number)
            for topic_id, numbers in (value.get("incomplete_replicas") or {}).items()
            for number in numbers
        ),
    )


def encode_broker_epochs(admitted: Mapping[BrokerId, Admission]) -> bytes:
    return _dump(
        {
            "version": 1,
            "epochs": {str(broker): each.epoch for broker, each in sorted(admitted.items())},
            "incarnations": {str(broker): each.incarnation for broker, each in sorted(admitted.items())},
        }
    )


def decode_broker_epochs(data: bytes) -> dict[BrokerId, Admission]:
    value = json.loads(data)
    incarnations = value.get("incarnations") or {}
    return {
        int(broker): Admission(epoch, incarnations.get(broker, ""))
        for broker, epoch in value["epochs"].items()
    }


class Reassignment(NamedTuple):
    """The replicas of a partition that a reassignment adds, and those that it removes (KIP-455)."""

    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()


_NOT_MOVING = Reassignment()


class Assignment(NamedTuple):
    """The content of a topic's node: the topic's id, and the replicas of each partition, by its number."""

    topic_id: TopicId
    replicas: Sequence[tuple[BrokerId, ...]]
    #: the partitions that are being reassigned, by their numbers
    reassignments: Mapping[int, Reassignment] = MappingProxyType({})


def assignment_of(topic: TopicImage) -> Assignment:
    """Return the assignment of a topic in a metadata image, for `encode_topic`."""
    return Assignment(
        topic.id,
        [state.replicas for state in topic.partitions],
        {
            number: Reassignment(state.adding, state.removing)
            for number, state in enumerate(topic.partitions)
            if state.adding or state.removing
        },
    )


def encode_topic(assignment: Assignment) -> bytes:
    moving = sorted(assignment.reassignments.items())
    return _dump(
        {
            "version": 3,
            "topic_id": topic_id_to_str(assignment.topic_id),
            "partitions": {str(number): replicas for number, replicas in enumerate(assignment.replicas)},
            "adding_replicas": {str(number): each.adding for number, each in moving},
            "removing_replicas": {str(number): each.removing for number, each in moving},
        }
    )


def decode_topic(data: bytes) -> Assignment:
    value = json.loads(data)
    by_number = value["partitions"]
    shared: dict[tuple[BrokerId, ...], tuple[BrokerId, ...]] = {}
    replicas = (tuple(by_number[str(number)]) for number in range(len(by_number)))
    adding, removing = value.get("adding_replicas") or {}, value.get("removing_replicas") or {}
    return Assignment(
        topic_id_from_str(value["topic_id"]),
        [shared.setdefault(r, r) for r in replicas],
        {
            int(number): Reassignment(tuple(adding.get(number, ())), tuple(removing.get(number, ())))
            for number in sorted(adding.keys() | removing.keys())
        },
    )


def encode_partition_state(state: PartitionState, controller_epoch: int) -> bytes:
    # Shared by the partitions that have the same state: most of a topic's.
    return _encoded_state(
        state._replace(replicas=(), adding=(), removing=(), partition_epoch=0), controller_epoch
    )


@lru_cache(maxsize=4096)
def _encoded_state(state: PartitionState, controller_epoch: int) -> bytes:
    return _dump(
        {
            "version": 1,
            "controller_epoch": controller_epoch,
            "leader": state.leader,
            "leader_epoch": state.leader_epoch,
            "isr": state.isr,
            "elr": state.elr,
            "last_known_elr": state.last_known_elr,
            "leader_recovery_state": int(state.recovering),
        }
    )


def decode_state_controller_epoch(data: bytes) -> int:
    """Return the epoch of the controller that wrote a partition's state.

    Raises ValueError, KeyError or TypeError if `data` is invalid.
    """
    return int(json.loads(data)["controller_epoch"])


def decode_partition_state(
    replicas: tuple[BrokerId, ...], node: StoreNode, reassignment: Reassignment = _NOT_MOVING
) -> PartitionState:
    return _partition_state(replicas, reassignment, node.data, node.version)


@lru_cache(maxsize=4096)
def _partition_state(
    replicas: tuple[BrokerId, ...], reassignment: Reassignment, data: bytes, version: int
) -> PartitionState:
    # Partitions with the same state share it: most of a topic's have. Another state has another version.
    value = json.loads(data)
    return PartitionState(
        replicas,
        tuple(value["isr"]),
        value["leader"],
        value["leader_epoch"],
        partition_epoch=version,
        elr=tuple(value.get("elr", ())),
        last_known_elr=tuple(value.get("last_known_elr", ())),
        recovering=bool(value.get("leader_recovery_state", 0)),
        adding=reassignment.adding,
        removing=reassignment.removing,
    )


def encode_deleted_topic(brokers: Iterable[BrokerId]) -> bytes:
    return _dump({"version": 1, "brokers": sorted(brokers)})


def decode_deleted_topic(data: bytes) -> frozenset[BrokerId]:
    """Decode a deletion note. Return the brokers that may still have folders of the deleted topic.

    Raises ValueError, KeyError or TypeError if `data` is invalid.
    """
    return frozenset(json.loads(data)["brokers"])


def encode_config(config: Mapping[str, str]) -> bytes:
    return _dump({"version": 1, "config": config})


def decode_config(data: bytes) -> dict[str, str]:
    """Decode the settings in a node. If `data` is empty, the node is only a parent: return no settings.

    Raises ValueError, KeyError or TypeError if `data` is invalid.
    """
    if not data:
        return {}
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
    """Return the first and the last id of the last allocated block of producer ids.

    Raises ValueError, KeyError or TypeError if `data` is invalid.
    """
    value = json.loads(data)
    return int(value["block_start"]), int(value["block_end"])


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _dump(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
