"""Declares the partitions whose leader must answer the requests of an API (ADR 15).

    @handles(HeartbeatRequest, needs=[Group(READ)], confirmed_by=group_coordinator())

If a broker is not certain that it still leads these partitions, it must prove this before it answers
(`barnabas.broker.server.requests.confirmed`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from barnabas.base.errors import ErrorCode
from barnabas.base.types import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
)
from barnabas.broker.coordinator import (
    GroupCoordinator,
    ShareCoordinator,
    SharePartitionKey,
    TransactionCoordinator,
)
from barnabas.broker.coordinator.coordinator import Coordinator
from barnabas.broker.server.requests.parts import Parts
from barnabas.kafka.protocol.schema import Request

#: the partitions whose leader alone may answer a request
PartitionsOf: TypeAlias = Callable[[Any], Iterable[TopicPartition]]


class Leadership(ABC):
    """Finds the partitions whose leader must answer a request of an API."""

    #: error of a broker that cannot prove that it leads the partitions
    refusal: ErrorCode

    @abstractmethod
    def partitions_of(self, parts: Parts) -> PartitionsOf:
        """Return a function that maps a request to the partitions whose leader must answer it.

        Args:
            parts: parts of the broker, for example coordinators, that the function can use.
        """


class leader_of(Leadership):
    """Declares that the leader of the partitions in a request must answer.

    The request has an array `topics`. Each topic has an array `partitions`.

    Args:
        index: name of the field with the partition's number, in the elements of `partitions`.
    """

    refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER

    def __init__(self, index: str) -> None:
        self._index = index

    def partitions_of(self, parts: Parts) -> PartitionsOf:
        return self._named

    def _named(self, request: Any) -> Iterable[TopicPartition]:
        for topic in request.topics:
            name = topic.name if hasattr(topic, "name") else topic.topic
            for wanted in topic.partitions:
                yield TopicPartition(name, getattr(wanted, self._index))


class _CoordinatorOf(Leadership):
    refusal = ErrorCode.NOT_COORDINATOR

    def __init__(self, coordinator: type[Coordinator[Any]], topic: str, fields: tuple[str, ...]) -> None:
        self._coordinator = coordinator
        self._topic = topic
        self._fields = fields

    def partitions_of(self, parts: Parts) -> PartitionsOf:
        partition_for = parts.get(self._coordinator).partition_for

        def named(request: Request) -> list[TopicPartition]:
            return [TopicPartition(self._topic, partition_for(key)) for key in _keys(request, self._fields)]

        return named


def group_coordinator(*fields: str) -> Leadership:
    """Declare that the coordinator of the groups in a request must answer.

    Args:
        fields: names of the request's fields with group ids; without names, `group_id`. ``array.field`` is a
            field in each element of an array.
    """
    return _CoordinatorOf(GroupCoordinator, GROUP_METADATA_TOPIC, fields or ("group_id",))


def transaction_coordinator(*fields: str) -> Leadership:
    """Declare that the coordinator of the transactional ids in a request must answer.

    Args:
        fields: names of the request's fields with transactional ids; without names, `transactional_id`.
            ``array.field`` is a field in each element of an array.
    """
    return _CoordinatorOf(TransactionCoordinator, TRANSACTION_STATE_TOPIC, fields or ("transactional_id",))


class share_coordinator(Leadership):
    """Declares that the coordinator of the share partitions in a request must answer.

    The request has a `group_id` and an array `topics`. Each topic has a `topic_id` and an array `partitions`.
    """

    refusal = ErrorCode.NOT_COORDINATOR

    def partitions_of(self, parts: Parts) -> PartitionsOf:
        partition_for = parts.get(ShareCoordinator).partition_for

        def named(request: Any) -> list[TopicPartition]:
            return [
                TopicPartition(
                    SHARE_GROUP_STATE_TOPIC,
                    partition_for(str(SharePartitionKey(request.group_id, topic.topic_id, wanted.partition))),
                )
                for topic in request.topics
                for wanted in topic.partitions
            ]

        return named


def _keys(request: Request, fields: Iterable[str]) -> Iterator[str]:
    """Yield the strings in the given fields of a request. Leave out fields that are null.

    Args:
        request: the request.
        fields: names of fields that are a string or an array of strings. ``array.field`` is a field in each
            element of an array.
    """
    for path in fields:
        items, _, field = path.rpartition(".")
        for item in getattr(request, items) if items else [request]:
            found = getattr(item, field)
            if isinstance(found, str):
                yield found
            elif found is not None:
                yield from found
