"""Which brokers get the replicas of new partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from random import Random

from barnabas.errors import ErrorCode, KafkaError
from barnabas.metadata.image import BrokerImage
from barnabas.types import BrokerId


def place_replicas(
    brokers: Iterable[BrokerImage], partitions: int, replication_factor: int, random: Random
) -> list[tuple[BrokerId, ...]]:
    """Replicas for `partitions` new partitions, the preferred leader of each first.

    Leaders go round the brokers from a random start; the followers of one round stand next to their leader,
    those of the next round a step further on, so that a lost broker's load spreads over the others. Brokers
    of different racks take turns, so neighbours are in different racks as far as they can be.

    Raises:
        KafkaError: INVALID_REPLICATION_FACTOR, when there are too few brokers.
    """
    ring = _racks_in_turn(brokers)
    if replication_factor > len(ring):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{replication_factor} replicas of a partition need as many brokers, and {len(ring)} are alive",
        )
    start = random.randrange(len(ring))
    placed = []
    for partition in range(partitions):
        leader = start + partition
        shift = (partition // len(ring)) % max(len(ring) - 1, 1)
        followers = (1 + (shift + step) % (len(ring) - 1) for step in range(replication_factor - 1))
        placed.append(tuple(ring[(leader + offset) % len(ring)] for offset in (0, *followers)))
    return placed


def _racks_in_turn(brokers: Iterable[BrokerImage]) -> Sequence[BrokerId]:
    racks: dict[str | None, list[BrokerId]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.id):
        racks.setdefault(broker.rack, []).append(broker.id)
    rounds = zip_longest(*racks.values())
    return [broker for round_ in rounds for broker in round_ if broker is not None]
