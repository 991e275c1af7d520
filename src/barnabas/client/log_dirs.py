"""Log directories of brokers, their replicas and sizes, and moves between them (KIP-113)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import BrokerId, TopicPartition
from barnabas.client.brokers import BrokerResponses, Brokers
from barnabas.client.errors import check_code, error_code
from barnabas.client.leaders import by_topic
from barnabas.kafka.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.kafka.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

#: a replica: its broker and its partition
Replica: TypeAlias = tuple[BrokerId, TopicPartition]


class ReplicaLogDir(NamedTuple):
    """The log directory of a replica, and the one to which the replica moves.

    `moving_to` is None if the replica does not move. `path` is None if the broker has reported only
    `moving_to`.
    """

    path: str | None
    moving_to: str | None


def describe_log_dirs(brokers: Brokers, broker: BrokerId) -> list[dict[str, Any]]:
    """Return the log directories of a broker, each as a dict.

    The dict has "path", "error" (the name of an error code, or None), and "replicas" (the number of replicas
    in the directory). It also has "bytes" (the size of these replicas in total) and "free_bytes" (of the
    volume; None if unknown).

    Raises:
        KafkaError: the broker rejected the request.
        ClientError: the broker does not answer.
    """
    response = brokers.ask(broker, DescribeLogDirsRequest(topics=None))
    check_code(response.error_code)
    directories = []
    for each in response.results:
        sizes = [replica.partition_size for topic in each.topics for replica in topic.partitions]
        directories.append(
            {
                "path": each.log_dir,
                "error": error_code(each.error_code).name if each.error_code else None,
                "replicas": len(sizes),
                "bytes": sum(sizes),
                "free_bytes": None if each.usable_bytes < 0 else each.usable_bytes,
            }
        )
    return directories


def replica_sizes(brokers: Brokers, replicas: Iterable[Replica]) -> dict[Replica, int]:
    """Return the bytes on disk of replicas.

    Replicas that do not exist, and those on brokers that do not answer, are left out.
    """
    return {
        replica: each.partition_size
        for replica, _, each in _found(_describe(brokers, replicas))
        if not each.is_future_key
    }


def replica_log_dirs(brokers: Brokers, replicas: Iterable[Replica]) -> dict[Replica, ReplicaLogDir]:
    """Return the log directories of replicas. Replicas that do not exist are left out.

    Raises:
        ClientError: a broker does not answer, or is not in the cluster.
    """
    found: dict[Replica, ReplicaLogDir] = {}
    answers = _describe(brokers, replicas)
    _require_all(answers)
    for replica, path, each in _found(answers):
        known = found.get(replica, ReplicaLogDir(None, None))
        found[replica] = known._replace(moving_to=path) if each.is_future_key else known._replace(path=path)
    return found


def move(brokers: Brokers, targets: Mapping[Replica, str]) -> dict[Replica, KafkaError]:
    """Start to move replicas to log directories. `targets` has the path of the directory for each replica.

    Return an error for each replica that its broker does not move. It is no error if a replica does not exist
    yet: the broker will create it in that directory.

    Raises:
        ClientError: a broker does not answer, or is not in the cluster.
    """
    requests = {}
    for broker, partitions in _by_broker(targets).items():
        paths: dict[str, list[TopicPartition]] = {}
        for partition in partitions:
            paths.setdefault(targets[broker, partition], []).append(partition)
        requests[broker] = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=path,
                    topics=[
                        AlterReplicaLogDirTopic(name=n, partitions=ps) for n, ps in by_topic(those).items()
                    ],
                )
                for path, those in paths.items()
            ]
        )
    answers = brokers.ask_each(requests)
    _require_all(answers)
    return {
        (broker, TopicPartition(topic.topic_name, each.partition_index)): KafkaError(
            error_code(each.error_code)
        )
        for broker, response in answers.responses.items()
        for topic in response.results
        for each in topic.partitions
        if each.error_code not in (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE)
    }


def _describe(brokers: Brokers, replicas: Iterable[Replica]) -> BrokerResponses:
    return brokers.ask_each(
        {
            broker: DescribeLogDirsRequest(
                topics=[
                    DescribableLogDirTopic(topic=name, partitions=numbers)
                    for name, numbers in by_topic(partitions).items()
                ]
            )
            for broker, partitions in _by_broker(replicas).items()
        }
    )


def _found(answers: BrokerResponses) -> Iterator[tuple[Replica, str, Any]]:
    """Yield each replica in the responses, with the path of its log directory and its description."""
    for broker, response in answers.responses.items():
        for directory in response.results:
            for topic in directory.topics:
                for each in topic.partitions:
                    yield (broker, TopicPartition(topic.name, each.partition_index)), directory.log_dir, each


def _require_all(answers: BrokerResponses) -> None:
    for failure in answers.failures.values():
        raise failure


def _by_broker(replicas: Iterable[Replica]) -> dict[BrokerId, list[TopicPartition]]:
    brokers: dict[BrokerId, list[TopicPartition]] = {}
    for broker, partition in sorted(replicas):
        brokers.setdefault(broker, []).append(partition)
    return brokers
