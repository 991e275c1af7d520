"""Throttles of reassignments, as Kafka's tools set them (KIP-73): rates of brokers, replicas of topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from barnabas.client.broker_calls import ask_any
from barnabas.client.errors import error_code
from barnabas.client.moves import Move
from barnabas.errors import KafkaError
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.types import BrokerId, TopicPartition

_TOPIC, _BROKER = 2, 4
_SET, _DELETE = 0, 1
_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LEADERS = "leader.replication.throttled.replicas"
_FOLLOWERS = "follower.replication.throttled.replicas"


def throttle(
    servers: str, timeout: float, moves: Mapping[TopicPartition, Move], brokers: Iterable[BrokerId], rate: int
) -> None:
    """Copy the replicas that are added at `rate` bytes a second at most, on each broker and either side.

    Raises:
        KafkaError: a broker refused. ClientError: none answers.
    """
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    for (topic, number), move in sorted(moves.items()):
        sources = (replica for replica in move.replicas if replica not in move.adding)
        leaders.setdefault(topic, []).extend(f"{number}:{replica}" for replica in sources)
        followers.setdefault(topic, []).extend(f"{number}:{replica}" for replica in move.adding)
    resources = [
        _resource(_TOPIC, topic, {_LEADERS: ",".join(leaders[topic]), _FOLLOWERS: ",".join(followers[topic])})
        for topic in leaders
    ]
    resources += [_resource(_BROKER, str(broker), dict.fromkeys(_RATES, str(rate))) for broker in brokers]
    _alter(servers, timeout, resources)


def lift(servers: str, timeout: float, topics: Iterable[str], brokers: Iterable[BrokerId]) -> None:
    """Take the throttles of these topics and brokers away.

    Raises:
        KafkaError: a broker refused. ClientError: none answers.
    """
    resources = [_resource(_TOPIC, topic, dict.fromkeys((_LEADERS, _FOLLOWERS))) for topic in sorted(topics)]
    resources += [_resource(_BROKER, str(broker), dict.fromkeys(_RATES)) for broker in sorted(brokers)]
    _alter(servers, timeout, resources)


def _resource(kind: int, name: str, settings: Mapping[str, str | None]) -> AlterConfigsResource:
    """Sets what is given, and resets what is None to its default."""
    return AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
            for key, value in settings.items()
        ],
    )


def _alter(servers: str, timeout: float, resources: list[AlterConfigsResource]) -> None:
    response: Any = ask_any(servers, timeout, IncrementalAlterConfigsRequest(resources=resources))
    for result in response.responses:
        if result.error_code:
            raise KafkaError(error_code(result.error_code), result.error_message)
