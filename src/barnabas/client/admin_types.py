"""What `Admin` answers with: plain, sortable, and named as in Kafka."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.types import TopicPartition


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A broker."""

    id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str
    controller: int | None
    nodes: tuple[Node, ...]


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
    """A setting's value; `source` says what it comes from, `synonyms` what else could set it, best first."""

    name: str
    value: str | None
    source: str
    is_default: bool
    read_only: bool
    sensitive: bool
    synonyms: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True, order=True)
class GroupListing:
    group: str
    state: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A consumer group; `assignor` is the protocol its members agreed on."""

    group: str
    state: str
    assignor: str
    coordinator: int | None
    members: tuple[GroupMember, ...]
