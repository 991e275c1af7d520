"""Sets and removes throttles for reassignments (KIP-73): rates of brokers, throttled replicas of topics."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from barnabas.base.errors import ErrorCode
from barnabas.base.types import BrokerId, TopicPartition
from barnabas.client.brokers import Brokers
from barnabas.client.config_calls import changed_resource
from barnabas.client.errors import check_code
from barnabas.client.moves import Move
from barnabas.kafka.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

_TOPIC, _BROKER = 2, 4
_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LEADERS = "leader.replication.throttled.replicas"
_FOLLOWERS = "follower.replication.throttled.replicas"


def throttle(
    cluster: Brokers, moves: Mapping[TopicPartition, Move], brokers: Iterable[BrokerId], rate: int
) -> None:
    """Limit the replication to the new replicas of `moves` to `rate` bytes a second.

    The limit applies on each of `brokers` twice: to what the broker sends as a leader, and to what it
    receives as a follower. In each topic of `moves`, the limit of earlier moves ends: only the partitions in
    `moves` are throttled.

    Raises:
        KafkaError: a broker rejected the request. ClientError: no broker answers.
    """
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    for (topic, number), move in sorted(moves.items()):
        sources = (replica for replica in move.replicas if replica not in move.adding)
        leaders.setdefault(topic, []).extend(f"{number}:{replica}" for replica in sources)
        followers.setdefault(topic, []).extend(f"{number}:{replica}" for replica in move.adding)
    resources = [
        _resource(
            "topic", topic, {_LEADERS: ",".join(leaders[topic]), _FOLLOWERS: ",".join(followers[topic])}
        )
        for topic in leaders
    ]
    resources += [_resource("broker", str(broker), dict.fromkeys(_RATES, str(rate))) for broker in brokers]
    _alter(cluster, resources)


def lift(cluster: Brokers, topics: Iterable[str], brokers: Iterable[BrokerId]) -> None:
    """Remove the throttles of these topics and brokers, and of all brokers in the topics' throttle settings.

    A throttled broker that has died is not in the cluster's metadata, but it is in those settings.

    Raises:
        KafkaError: a broker rejected the request. ClientError: no broker answers.
    """
    topics = sorted(topics)
    known = set(brokers)
    brokers = sorted(known | _throttled_brokers(cluster, topics))
    resources = [_resource("topic", topic, dict.fromkeys((_LEADERS, _FOLLOWERS))) for topic in topics]
    resources += [_resource("broker", str(broker), dict.fromkeys(_RATES)) for broker in brokers]
    # A user may have named a broker that never was: it has no throttle.
    _alter(cluster, resources, may_be_unknown=set(brokers) - known)


def _throttled_brokers(cluster: Brokers, topics: Sequence[str]) -> set[BrokerId]:
    """Return the brokers in the topics' throttle settings, which are lists of ``partition:broker``.

    The value ``*``, for all replicas, adds no broker.
    """
    if not topics:
        return set()
    response: Any = cluster.ask_once(
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=_TOPIC, resource_name=topic, configuration_keys=[_LEADERS, _FOLLOWERS]
                )
                for topic in topics
            ]
        ),
    )
    values = (config.value or "" for result in response.results for config in result.configs)
    replicas = (replica.strip() for value in values for replica in value.split(","))
    return {
        int(broker) for broker in (replica.partition(":")[2] for replica in replicas) if broker.isdecimal()
    }


def _resource(kind: str, name: str, settings: Mapping[str, str | None]) -> AlterConfigsResource:
    """Return the part of a request that changes settings of one resource.

    Args:
        kind: "topic" or "broker".
        name: name of the topic, or id of the broker.
        settings: the new value of each setting; None resets it to its default.
    """
    changes = [("delete" if value is None else "set", key, value) for key, value in settings.items()]
    return changed_resource(kind, name, changes)


def _alter(
    cluster: Brokers,
    resources: list[AlterConfigsResource],
    may_be_unknown: Collection[BrokerId] = (),
) -> None:
    response: Any = cluster.ask_once(IncrementalAlterConfigsRequest(resources=resources))
    unknown = set(map(str, may_be_unknown))
    for result in response.responses:
        if (
            result.resource_type == _BROKER
            and result.resource_name in unknown
            and result.error_code in (ErrorCode.INVALID_REQUEST, ErrorCode.BROKER_ID_NOT_REGISTERED)
        ):
            continue
        check_code(result.error_code, result.error_message)
