"""Which groups this broker coordinates: those whose partitions of `__consumer_offsets` it leads."""

from __future__ import annotations

from barnabas.coordinator import GroupCoordinator
from barnabas.metadata import ImageDelta
from barnabas.types import GROUP_METADATA_TOPIC, BrokerId


def follow_image(groups: GroupCoordinator, node_id: BrokerId, delta: ImageDelta) -> None:
    """Take up and give up groups as leadership moves; forget the offsets of topics that are gone."""
    if GROUP_METADATA_TOPIC in delta.topics:
        before = delta.before.topics.get(GROUP_METADATA_TOPIC)
        after = delta.after.topics.get(GROUP_METADATA_TOPIC)
        states = after.partitions if after is not None else ()
        led = {index: state.leader_epoch for index, state in enumerate(states) if state.leader == node_id}
        is_same = before is not None and after is not None and before.id == after.id
        for partition in groups.coordinated():
            if partition not in led or not is_same:
                groups.resign(partition)
        for partition, epoch in led.items():
            groups.elect(partition, epoch)
    gone = {name for name in delta.topics if _is_gone(name, delta)}
    if gone:
        groups.forget_topics(gone)


def _is_gone(name: str, delta: ImageDelta) -> bool:
    before, after = delta.before.topics.get(name), delta.after.topics.get(name)
    return before is not None and (after is None or after.id != before.id)
