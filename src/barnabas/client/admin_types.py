"""Types of the results of `Admin`, with Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.base.types import NO_BROKER, TopicPartition
from barnabas.client.errors import check_code
from barnabas.kafka.protocol.messages.describe_cluster import DescribeClusterResponse


@dataclass(frozen=True, slots=True, order=True)
class BrokerNode:
    """A broker: its id, advertised address and rack."""

    id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str
    controller: int | None
    nodes: tuple[BrokerNode, ...]


def described(answer: DescribeClusterResponse) -> ClusterDescription:
    """Return the brokers and the controller in `answer`. Raises KafkaError if it has an error code."""
    check_code(answer.error_code, answer.error_message)
    nodes = sorted(BrokerNode(each.broker_id, each.host, each.port, each.rack) for each in answer.brokers)
    controller = None if answer.controller_id == NO_BROKER else answer.controller_id
    return ClusterDescription(answer.cluster_id, controller, tuple(nodes))


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition's leader (None when it has none), replicas and in-sync replicas, by broker id."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    topic_id: str
    internal: bool
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A setting with its value.

    Attributes:
        value: None if the broker hides the value, because it is a secret, or if there is none.
        source: the origin of the value, such as "topic" or "default".
        synonyms: names and values of the settings that can give the value, in order of precedence.
    """

    name: str
    value: str | None
    source: str
    is_default: bool
    read_only: bool
    sensitive: bool
    synonyms: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True, order=True)
class GroupListing:
    """A group. `type` is its protocol: classic, consumer or share; unknown if the broker does not say."""

    group: str
    state: str
    type: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group.

    Attributes:
        instance_id: ``group.instance.id`` of a static member; None for other members.
        host: the member's address, as the broker sees it.
        assignment: the partitions that the member has now.
        protocol: group protocol by which the member joined; None in a classic group.
        epoch: member epoch; None in a classic group.
        target: target assignment; None in a classic group or a share group.
        regex: regular expression of the member's subscription; None if it has none.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    protocol: str | None = None
    epoch: int | None = None
    target: tuple[TopicPartition, ...] | None = None
    regex: str | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A consumer group or a share group.

    Attributes:
        assignor: name of the assignor, or the protocol that the members of a classic group use.
        coordinator: id of the broker that coordinates the group.
        type: the group's protocol: classic, consumer or share.
        epoch: group epoch; None for a classic group.
        target_epoch: epoch of the target assignment; None for a classic group.
    """

    group: str
    state: str
    assignor: str
    coordinator: int | None
    members: tuple[GroupMember, ...]
    type: str = "classic"
    epoch: int | None = None
    target_epoch: int | None = None
