"""Chooses the brokers for the replicas of partitions, or checks those that a request names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import zip_longest
from random import Random

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.text import shown
from barnabas.base.types import BrokerId
from barnabas.broker.metadata.image import BrokerImage


def place_replicas(
    brokers: Iterable[BrokerImage],
    partitions: int,
    replication_factor: int,
    random: Random,
    *,
    others: Sequence[Sequence[BrokerId]] = (),
) -> list[tuple[BrokerId, ...]]:
    """Return replicas for `partitions` new partitions, the preferred leader of each first.

    Leaders rotate over the brokers from a random start. With each rotation, the followers move one step away
    from the leader, so that the load of a failed broker spreads over all others. For example, two replicas on
    brokers 0, 1 and 2 give ``01 12 20``, and in the next rotation ``02 10 21``. A rack gets a second
    replica of a partition only when every rack has one.

    If there are fewer `brokers` than replicas, each broker gets a replica, and the other replicas go to
    `others`, as in Apache Kafka's KRaft. The brokers in `others` copy the records when they run. None of them
    becomes a preferred leader.

    Args:
        brokers: brokers that can be in sync at once.
        partitions: the number of partitions.
        replication_factor: number of replicas of each partition.
        random: chooses the start.
        others: groups of brokers that do not run now; the first group is used first.

    Raises:
        KafkaError: INVALID_REPLICATION_FACTOR, there are too few brokers in all, or `brokers` is empty.
    """
    racks = {broker.id: broker.rack for broker in brokers}
    ring = _racks_in_turn(racks)
    known = len(ring) + sum(map(len, others))
    if replication_factor > known:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"a partition with {replication_factor} replicas needs {replication_factor} brokers, and the "
            f"cluster has {known}",
        )
    if not ring:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "no broker runs that could lead a partition")
    away = replication_factor - len(ring)
    replication_factor = min(replication_factor, len(ring))
    start = random.randrange(len(ring))
    has_racks = len(set(racks.values())) > 1
    placed = []
    for partition in range(partitions):
        leader = start + partition
        shift = (partition // len(ring)) % max(len(ring) - 1, 1)
        distances = (0, *(1 + (shift + step) % (len(ring) - 1) for step in range(len(ring) - 1)))
        order = [ring[(leader + distance) % len(ring)] for distance in distances]
        chosen = _across_racks(order, racks, replication_factor) if has_racks else order[:replication_factor]
        more = [each for group in others for each in _rotated(group, leader)][: max(away, 0)]
        placed.append((*chosen, *more))
    return placed


def add_replicas(
    replicas: Sequence[BrokerId], count: int, brokers: Iterable[BrokerImage], held: Counter[BrokerId]
) -> tuple[BrokerId, ...]:
    """Add replicas to the `replicas` of one partition, until there are `count` or no other broker is left.

    Return all replicas, the new ones last. The function chooses from `brokers`. It prefers brokers in racks
    without a replica of the partition, then brokers that have few replicas. `held` has the number of replicas
    of each broker. The function adds the new replicas to these numbers.
    """
    racks = {broker.id: broker.rack for broker in brokers}
    chosen = list(replicas)
    while len(chosen) < count and (free := racks.keys() - chosen):
        used = {racks[broker] for broker in chosen if broker in racks}
        broker = min(free, key=lambda each: (racks[each] in used, held[each], each))
        chosen.append(broker)
        held[broker] += 1
    return tuple(chosen)


def _rotated(group: Sequence[BrokerId], by: int) -> Sequence[BrokerId]:
    by %= max(len(group), 1)
    return (*group[by:], *group[:by])


def _across_racks(
    order: Sequence[BrokerId], racks: Mapping[BrokerId, str | None], count: int
) -> list[BrokerId]:
    """Return the first `count` brokers, in the `order` of preference, and evenly from all racks.

    The first broker of each rack comes first, then the second broker of each rack, and so on. `racks` has the
    rack of each broker; all brokers without a rack (None) count as one rack.
    """
    before: Counter[str | None] = Counter()
    ranks = {}
    for broker in order:
        ranks[broker] = before[racks[broker]]
        before[racks[broker]] += 1
    return sorted(order, key=lambda broker: ranks[broker])[:count]  # stable: within a rank, by preference


def _racks_in_turn(racks: Mapping[BrokerId, str | None]) -> Sequence[BrokerId]:
    members: dict[str | None, list[BrokerId]] = {}
    for broker, rack in sorted(racks.items()):
        members.setdefault(rack, []).append(broker)
    rounds = zip_longest(*members.values())
    return [broker for round_ in rounds for broker in round_ if broker is not None]


def check_assignment(
    replicas: Sequence[BrokerId], alive: Collection[BrokerId], replication_factor: int | None = None
) -> tuple[BrokerId, ...]:
    """Check the replicas that a request names for one partition, and return them.

    `replication_factor` is the required number of replicas; None accepts any number but 0.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT, a replica is twice in `replicas` or not in `alive`, or the
            number of replicas is wrong.
    """
    if not replicas:
        raise invalid_assignment("an assignment names no broker")
    if len(set(replicas)) < len(replicas):
        raise invalid_assignment(f"the assignment {shown(replicas)} names a broker twice")
    for broker in replicas:
        if broker not in alive:
            raise invalid_assignment(
                f"the assignment {shown(replicas)} names broker {broker}, which is not in the cluster"
            )
    if replication_factor is not None and len(replicas) != replication_factor:
        raise invalid_assignment(
            f"the assignment {shown(replicas)} has {len(replicas)} replicas, "
            f"the topic's other partitions have {replication_factor}"
        )
    return tuple(replicas)


def check_assignments(
    assignments: Sequence[tuple[int, Sequence[BrokerId]]], alive: Collection[BrokerId]
) -> list[tuple[BrokerId, ...]]:
    """Check the replicas that a request names for a new topic. Return them in the order of the partitions.

    `assignments` are pairs of a partition number and the partition's replicas. There must be at least one.
    `alive` are the brokers that the request may name.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT, the partitions are not numbered 0, 1, 2 without gaps, they
            have different numbers of replicas, or `check_assignment` rejects the replicas of one.
    """
    by_number = dict(assignments)
    if len(by_number) < len(assignments):
        raise invalid_assignment("a partition is assigned twice")
    if sorted(by_number) != list(range(len(by_number))):
        raise invalid_assignment(
            f"partitions {shown(sorted(by_number))} are assigned: number them 0, 1, 2 without gaps"
        )
    factor = len(by_number[0])
    return [check_assignment(by_number[number], alive, factor) for number in range(len(by_number))]


def invalid_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
