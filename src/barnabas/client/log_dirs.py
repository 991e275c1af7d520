"""Log directories of replicas, and moves between them (KIP-113)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import BrokerId, TopicPartition
from barnabas.client.admin_types import Node
from barnabas.client.connection import Connection
from barnabas.client.errors import ClientError, error_code
from barnabas.client.servers import security_for
from barnabas.kafka.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.kafka.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

#: a replica: its broker and its partition
Replica: TypeAlias = tuple[BrokerId, TopicPartition]


class Place(NamedTuple):
    """The log directory of a replica, and the one to which it moves, None where there is none."""

    path: str | None
    moving_to: str | None


def places(
    servers: str, nodes: Iterable[Node], replicas: Iterable[Replica], timeout: float
) -> dict[Replica, Place]:
    """Return the log directories of replicas; replicas that do not exist are left out.

    Raises:
        ClientError: a broker does not answer, or is not in the cluster.
    """
    found: dict[Replica, Place] = {}
    for broker, partitions in _by_broker(replicas).items():
        topics = [
            DescribableLogDirTopic(topic=name, partitions=ps) for name, ps in _by_topic(partitions).items()
        ]
        for directory in _ask(servers, nodes, broker, DescribeLogDirsRequest(topics=topics), timeout).results:
            for topic in directory.topics:
                for each in topic.partitions:
                    replica = broker, TopicPartition(topic.name, each.partition_index)
                    place = found.get(replica, Place(None, None))
                    path = directory.log_dir
                    found[replica] = (
                        place._replace(moving_to=path) if each.is_future_key else place._replace(path=path)
                    )
    return found


def move(
    servers: str, nodes: Iterable[Node], targets: Mapping[Replica, str], timeout: float
) -> dict[Replica, KafkaError]:
    """Begin to move replicas to log directories, by their paths; return the refused ones with errors.

    A replica that is not there yet will be made in its directory: that is no error.

    Raises:
        ClientError: a broker does not answer, or is not in the cluster.
    """
    errors: dict[Replica, KafkaError] = {}
    for broker, partitions in _by_broker(targets).items():
        paths: dict[str, list[TopicPartition]] = {}
        for partition in partitions:
            paths.setdefault(targets[broker, partition], []).append(partition)
        request = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=path,
                    topics=[
                        AlterReplicaLogDirTopic(name=n, partitions=ps) for n, ps in _by_topic(those).items()
                    ],
                )
                for path, those in paths.items()
            ]
        )
        for topic in _ask(servers, nodes, broker, request, timeout).results:
            for each in topic.partitions:
                if each.error_code not in (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE):
                    replica = broker, TopicPartition(topic.topic_name, each.partition_index)
                    errors[replica] = KafkaError(error_code(each.error_code))
    return errors


def _ask(servers: str, nodes: Iterable[Node], broker: BrokerId, request: Any, timeout: float) -> Any:
    node = next((node for node in nodes if node.id == broker), None)
    if node is None:
        raise ClientError(
            f"broker {broker} is not in the cluster, or away: its log directories cannot be asked"
        )
    with Connection(node.host, node.port, timeout, security=security_for(servers)) as connection:
        return connection.ask(request)


def _by_broker(replicas: Iterable[Replica]) -> dict[BrokerId, list[TopicPartition]]:
    brokers: dict[BrokerId, list[TopicPartition]] = {}
    for broker, partition in sorted(replicas):
        brokers.setdefault(broker, []).append(partition)
    return brokers


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics
