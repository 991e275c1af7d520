"""Plans of reassignments: the partitions to move and their new brokers.

A plan moves as little as it can. First it moves replicas away from brokers that must hold none. Then it moves
replicas from the fullest broker to the emptiest, until their numbers differ by at most one. Last, it evens
out preferred leaders, which moves no data. A plan never leaves a partition on fewer racks than before. A
replica that has to move goes to a rack without a replica of its partition, if there is one.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from barnabas.base.types import BrokerId, TopicPartition
from barnabas.client.errors import ClientError

Placement = dict[TopicPartition, tuple[BrokerId, ...]]


def plan_spread(
    current: Mapping[TopicPartition, Sequence[BrokerId]],
    racks: Mapping[BrokerId, str | None],
    *,
    replication_factor: int | None = None,
) -> Placement:
    """Return the partitions that must move so that brokers share the load evenly, with their new replicas.

    The result is empty if no partition must move. The preferred leader is the first of the new replicas.

    Args:
        current: the replicas of each partition, the preferred leader first.
        racks: brokers for the replicas, with their racks. Replicas on other brokers move to these.
        replication_factor: new number of replicas of each partition; None leaves the numbers unchanged.

    Raises:
        ClientError: there are too few brokers.
    """
    plan = _Plan(current, racks)
    plan.fill(replication_factor)
    plan.even_out_replicas()
    plan.even_out_leaders()
    return plan.changes(current)


def plan_drain(
    current: Mapping[TopicPartition, Sequence[BrokerId]],
    racks: Mapping[BrokerId, str | None],
    broker: BrokerId,
) -> Placement:
    """Return the partitions that must move so that `broker` holds no replica, with their new replicas.

    The result is empty if `broker` holds none. The preferred leader is the first of the new replicas.

    Args:
        current: the replicas of each partition, the preferred leader first.
        racks: all live brokers, with their racks.
        broker: broker that must hold no replica.

    Raises:
        ClientError: there are too few other brokers.
    """
    others = {other: rack for other, rack in racks.items() if other != broker}
    held = Counter(replica for replicas in current.values() for replica in replicas)
    leaders = Counter(replicas[0] for replicas in current.values() if replicas)
    plan = _Plan({tp: replicas for tp, replicas in current.items() if broker in replicas}, others)
    for other in others:  # what stays counts, too
        plan.held[other], plan.leaders[other] = held[other], leaders[other]
    plan.keep = {replica for replicas in current.values() for replica in replicas} - {broker}
    plan.fill(None)
    return plan.changes(current)


class _Plan:
    """The replicas of partitions while a plan is computed.

    Args:
        current: the replicas of each partition now, the preferred leader first.
        racks: brokers that may get replicas, with their racks; None for a broker without a rack.
    """

    def __init__(
        self, current: Mapping[TopicPartition, Sequence[BrokerId]], racks: Mapping[BrokerId, str | None]
    ) -> None:
        self._racks = racks
        self.replicas = {partition: list(replicas) for partition, replicas in sorted(current.items())}
        #: brokers that get no replicas, but keep those that they have
        self.keep: set[BrokerId] = set()
        self.held = Counter(dict.fromkeys(racks, 0))
        self.leaders = Counter(dict.fromkeys(racks, 0))
        for each in self.replicas.values():
            self.held.update(replica for replica in each if replica in racks)
            self.leaders.update(replica for replica in each[:1] if replica in racks)

    def changes(self, current: Mapping[TopicPartition, Sequence[BrokerId]]) -> Placement:
        return {
            partition: tuple(replicas)
            for partition, replicas in self.replicas.items()
            if replicas != list(current[partition])
        }

    def fill(self, factor: int | None) -> None:
        """Give each partition `factor` replicas, and none on a broker that must hold none.

        If `factor` is None, partitions keep their numbers of replicas. Raises ClientError if there are too
        few brokers.
        """
        for partition, replicas in self.replicas.items():
            wanted = len(replicas) if factor is None else factor
            for position, replica in enumerate(replicas):
                if replica not in self._racks and replica not in self.keep and position < wanted:
                    replicas[position] = self._add(partition, replicas, is_leader=position == 0)
            while len(replicas) < wanted:
                replicas.append(self._add(partition, replicas, is_leader=not replicas))
            while len(replicas) > wanted:
                self._drop(replicas)

    def _add(self, partition: TopicPartition, replicas: Sequence[BrokerId], *, is_leader: bool) -> BrokerId:
        free = [broker for broker in self._racks if broker not in replicas]
        if not free:
            raise ClientError(
                f"{partition} has {len(replicas)} replicas, and there are {len(self._racks)} brokers for "
                "them: name more brokers, or fewer replicas"
            )
        used = self._racks_of(replicas)
        load = self.leaders if is_leader else self.held
        broker = min(free, key=lambda b: (self._racks[b] in used, self.held[b], load[b], b))
        self.held[broker] += 1
        self.leaders[broker] += is_leader
        return broker

    def _drop(self, replicas: list[BrokerId]) -> None:
        """Remove one follower from `replicas`, if possible one that shares its rack with another replica.

        Of several candidates, remove the one on the broker with the most replicas.
        """
        used = Counter(self._racks.get(replica) for replica in replicas)
        outside = len(self._racks)

        def cost(position: int) -> tuple[bool, int, int]:
            replica = replicas[position]
            return used[self._racks.get(replica)] > 1, self.held.get(replica, outside), position

        position = max(range(1, len(replicas)), key=cost)
        replica = replicas.pop(position)
        if replica in self._racks:
            self.held[replica] -= 1

    def _racks_of(self, replicas: Iterable[BrokerId]) -> set[str | None]:
        return {self._racks[replica] for replica in replicas if replica in self._racks}

    def even_out_replicas(self) -> None:
        """Make the brokers' numbers of replicas equal, as far as racks allow.

        Followers move before leaders. The position of a replica in the order does not change.
        """
        on: dict[BrokerId, dict[TopicPartition, None]] = {broker: {} for broker in self._racks}
        for partition, replicas in self.replicas.items():
            for replica in replicas:
                if replica in on:
                    on[replica][partition] = None

        def move(donor: BrokerId, receiver: BrokerId, *, dry: bool) -> bool:
            partition = self._movable(on[donor], donor, receiver)
            if partition is None or dry:
                return partition is not None
            replicas = self.replicas[partition]
            position = replicas.index(donor)
            replicas[position] = receiver
            if position == 0:
                self.leaders[donor] -= 1
                self.leaders[receiver] += 1
            del on[donor][partition]
            on[receiver][partition] = None
            return True

        _even_out(self.held, move)

    def _movable(
        self, partitions: Iterable[TopicPartition], donor: BrokerId, receiver: BrokerId
    ) -> TopicPartition | None:
        candidate = None
        for partition in partitions:
            replicas = self.replicas[partition]
            if receiver in replicas:
                continue
            used = self._racks_of(replica for replica in replicas if replica != donor)
            if self._racks[receiver] in used and self._racks[donor] not in used:
                continue  # one rack fewer
            if replicas[0] != donor:
                return partition
            candidate = candidate or partition
        return candidate

    def even_out_leaders(self) -> None:
        """Make each broker the preferred leader of equally many partitions, as far as its replicas allow."""
        by_leader: dict[BrokerId, list[list[BrokerId]]] = {broker: [] for broker in self._racks}
        for replicas in self.replicas.values():
            if replicas and replicas[0] in by_leader:
                by_leader[replicas[0]].append(replicas)

        def hand_over(donor: BrokerId, receiver: BrokerId, *, dry: bool) -> bool:
            found = next((replicas for replicas in by_leader[donor] if receiver in replicas), None)
            if found is None or dry:
                return found is not None
            position = found.index(receiver)
            found[0], found[position] = receiver, donor
            by_leader[donor] = [replicas for replicas in by_leader[donor] if replicas is not found]
            by_leader[receiver].append(found)
            return True

        _even_out(self.leaders, hand_over)


def _even_out(load: Counter[BrokerId], step: Callable[..., bool]) -> None:
    """Move units of load from brokers with more to brokers with less, until no move reduces the difference.

    If a direct move is not possible, a chain of moves over other brokers can have the same effect.

    Args:
        load: load of each broker; it is updated.
        step: ``step(donor, receiver, dry=False)`` moves one unit. With ``dry=True`` it only returns whether
            that is possible.
    """
    while load:
        path = _path(load, step)
        if path is None:
            return
        for donor, receiver in pairwise(path):
            step(donor, receiver, dry=False)
            load[donor] -= 1
            load[receiver] += 1


def _path(load: Mapping[BrokerId, int], step: Callable[..., bool]) -> list[BrokerId] | None:
    """Return the shortest path of moves from a broker to one whose load is lower by at least two.

    Return None if there is no such path. `step` is as in `_even_out`.
    """
    least = min(load.values())
    for donor in sorted(load, key=lambda broker: (-load[broker], broker)):
        if load[donor] - least < 2:
            return None
        came_from: dict[BrokerId, BrokerId] = {donor: donor}
        queue = deque([donor])
        while queue:
            here = queue.popleft()
            for there in sorted(load, key=lambda broker: (load[broker], broker)):
                if there in came_from or not step(here, there, dry=True):
                    continue
                came_from[there] = here
                if load[donor] - load[there] >= 2:
                    path = [there]
                    while path[-1] != donor:
                        path.append(came_from[path[-1]])
                    return path[::-1]
                queue.append(there)
    return None
