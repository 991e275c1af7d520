"""Requests to single brokers: their log directories, and questions that any broker answers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from typing import Any

from barnabas.base.errors import KafkaError
from barnabas.base.types import BrokerId, TopicPartition
from barnabas.client.addresses import parse_servers
from barnabas.client.admin_types import Node
from barnabas.client.brokers import PATIENCE, fair_share
from barnabas.client.connection import Connection, Security
from barnabas.client.errors import AuthenticationError, ClientError, error_code
from barnabas.client.servers import security_for
from barnabas.kafka.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.kafka.protocol.schema import Request


def replica_sizes(
    nodes: Iterable[Node],
    partitions: Iterable[TopicPartition],
    timeout: float,
    security: Security | None = None,
) -> dict[tuple[BrokerId, TopicPartition], int]:
    """Return the bytes on disk of each replica, by broker and partition, of the brokers that tell."""
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    request = DescribeLogDirsRequest(
        topics=[DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in topics.items()]
    )
    sizes = {}
    for node in nodes:
        with (
            contextlib.suppress(ClientError),
            Connection(node.host, node.port, timeout, security=security) as connection,
        ):
            for directory in connection.ask(request).results:
                for topic in directory.topics:
                    for replica in topic.partitions:
                        if not replica.is_future_key:
                            place = TopicPartition(topic.name, replica.partition_index)
                            sizes[node.id, place] = replica.partition_size
    return sizes


def describe_log_dirs(node: Node, timeout: float, security: Security | None = None) -> list[dict[str, Any]]:
    """The log directories of a broker: path, error, replicas and their bytes, and the bytes that are free.

    Raises:
        KafkaError: the broker refused.
        ClientError: it does not answer.
    """
    with Connection(node.host, node.port, timeout, security=security) as connection:
        response = connection.ask(DescribeLogDirsRequest(topics=None))
    if response.error_code:
        raise KafkaError(error_code(response.error_code))
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


def ask_any(servers: str, timeout: float, request: Request) -> Any:
    """Return the response of the first broker that answers, within `timeout` seconds in all.

    A broker that hangs delays the others for a few seconds. The broker that accepts the connection has all
    the remaining time.

    Raises:
        ClientError: no broker answers.
    """
    deadline = time.monotonic() + timeout
    failure: ClientError | None = None
    for address in parse_servers(servers):
        patience = fair_share(deadline - time.monotonic(), PATIENCE)
        try:
            with Connection(*address, patience, security=security_for(servers)) as connection:
                connection.wait_for(max(deadline - time.monotonic(), patience))
                return connection.ask(request)
        except AuthenticationError:
            raise
        except ClientError as error:
            failure = error
    assert failure is not None
    raise failure
