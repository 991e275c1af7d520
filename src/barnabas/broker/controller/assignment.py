"""Replicas that a request names itself, instead of leaving them to the controller."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.text import shown
from barnabas.base.types import BrokerId


def check_assignment(
    replicas: Sequence[BrokerId], alive: Collection[BrokerId], replication_factor: int | None = None
) -> tuple[BrokerId, ...]:
    """One partition's replicas as asked for; `replication_factor` is how many there must be.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT.
    """
    if not replicas:
        raise refuse("an assignment names no broker")
    if len(set(replicas)) < len(replicas):
        raise refuse(f"the assignment {shown(replicas)} names a broker twice")
    for broker in replicas:
        if broker not in alive:
            raise refuse(f"the assignment {shown(replicas)} names broker {broker}, which is not there")
    if replication_factor is not None and len(replicas) != replication_factor:
        raise refuse(
            f"the assignment {shown(replicas)} has {len(replicas)} replicas, "
            f"the topic's other partitions have {replication_factor}"
        )
    return tuple(replicas)


def check_assignments(
    assignments: Sequence[tuple[int, Sequence[BrokerId]]], alive: Collection[BrokerId]
) -> list[tuple[BrokerId, ...]]:
    """Return a new topic's replicas by partition, as asked for.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT.
    """
    by_number = dict(assignments)
    if len(by_number) < len(assignments):
        raise refuse("a partition is assigned twice")
    if sorted(by_number) != list(range(len(by_number))):
        raise refuse(f"partitions {shown(sorted(by_number))} are assigned: number them 0, 1, 2 without gaps")
    factor = len(by_number[0])
    return [check_assignment(by_number[number], alive, factor) for number in range(len(by_number))]


def refuse(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
