"""What this broker coordinates: that whose partitions of an internal topic it leads."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from barnabas.coordinator import GroupCoordinator
from barnabas.metadata import ImageDelta
from barnabas.types import BrokerId, LeaderEpoch


class Coordinator(Protocol):
    """A coordinator of any kind."""

    def coordinated(self) -> Collection[int]: ...

    def elect(self, partition: int, epoch: LeaderEpoch) -> None: ...

    def resign(self, partition: int) -> None: ...


def follow_leadership(coordinator: Coordinator, topic: str, node_id: BrokerId, delta: ImageDelta) -> None:
    """Take up and give up partitions of the coordinator's internal topic as leadership moves."""
    if topic not in delta.topics:
        return
    before, after = delta.before.topics.get(topic), delta.after.topics.get(topic)
    states = after.partitions if after is not None else ()
    led = {index: state.leader_epoch for index, state in enumerate(states) if state.leader == node_id}
    is_same = before is not None and after is not None and before.id == after.id
    for partition in coordinator.coordinated():
        if partition not in led or not is_same:
            coordinator.resign(partition)
    for partition, epoch in led.items():
        coordinator.elect(partition, epoch)


def forget_deleted_topics(groups: GroupCoordinator, delta: ImageDelta) -> None:
    """Have groups forget the offsets of topics that are gone."""
    gone = {name for name in delta.topics if _is_gone(name, delta)}
    if gone:
        groups.forget_topics(gone)


def _is_gone(name: str, delta: ImageDelta) -> bool:
    before, after = delta.before.topics.get(name), delta.after.topics.get(name)
    return before is not None and (after is None or after.id != before.id)
