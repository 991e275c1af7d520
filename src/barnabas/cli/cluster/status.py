"""The state of a cluster's partitions, read from its brokers."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from barnabas.base.settings_file import read_unchecked
from barnabas.client.brokers import Brokers
from barnabas.client.certificate_folder import CertificateFolder
from barnabas.client.errors import ClientError
from barnabas.client.properties import translate
from barnabas.client.servers import Servers
from barnabas.kafka.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataResponse

#: seconds that a broker, or the ZooKeeper, has to answer
_ANSWER = 3.0


def partitions_of(addresses: Sequence[str], secure: Path | None) -> dict[str, Any]:
    """Return the controller and the problems of partitions, from the first of `addresses` that answers.

    The result has the keys ``controller``, ``partitions`` (their number), ``leaders`` (the number of led
    partitions by broker), ``under_replicated`` and ``without_leader`` (lists of ``TOPIC-PARTITION``). If no
    broker answers, ``controller`` and ``partitions`` are None, and the rest is empty.

    Args:
        secure: the folder with the admin's login, if the cluster requires one.
    """
    answers = _answers(Servers(",".join(addresses), {} if secure is None else _admin(secure)))
    if answers is None:
        return {
            "controller": None,
            "partitions": None,
            "leaders": {},
            "under_replicated": [],
            "without_leader": [],
        }
    controller, answer = answers
    states = [
        (f"{topic.name}-{partition.partition_index}", partition)
        for topic in sorted(answer.topics, key=lambda topic: topic.name or "")
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    ]
    return {
        "controller": controller if controller >= 0 else None,
        "partitions": len(states),
        "leaders": Counter(state.leader_id for _, state in states if state.leader_id >= 0),
        "under_replicated": [
            name for name, state in states if len(state.isr_nodes) < len(state.replica_nodes)
        ],
        "without_leader": [name for name, state in states if state.leader_id < 0],
    }


def zookeeper_answers(address: str) -> bool:
    """Whether one of the servers of ``host:port,.../chroot`` accepts connections."""
    servers = address.partition("/")[0].split(",")
    return any(connection_error(server, _ANSWER) is None for server in servers)


def connection_error(server: str, timeout: float) -> Exception | None:
    """Return the reason why ``host:port`` accepts no connection within `timeout` seconds; None if it does."""
    host, _, port = server.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout).close()
    except (OSError, UnicodeError) as error:
        return error
    return None


def _admin(secure: Path) -> Mapping[str, str]:
    """Return the settings with which a secured cluster's admin logs in. Raises SettingError, ConfigError."""
    return translate(read_unchecked(CertificateFolder(secure).properties("admin"))).settings


def _answers(servers: Servers) -> tuple[int, MetadataResponse] | None:
    """Return the controller and all topics, from the first broker that answers; None if none answers."""
    try:
        with closing(Brokers(servers, 2 * _ANSWER)) as brokers:
            controller: int = brokers.ask_once(DescribeClusterRequest()).controller_id
            everything = MetadataRequest(topics=None, allow_auto_topic_creation=False)
            return controller, brokers.ask_once(everything)
    except ClientError:
        return None
