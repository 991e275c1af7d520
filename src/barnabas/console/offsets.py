"""Start and end offsets of partitions, committed offsets and lag of groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from barnabas.base.errors import KafkaError
from barnabas.base.types import TopicPartition
from barnabas.client.errors import ClientError
from barnabas.client.offset_requests import by_partition, offsets_request
from barnabas.console.kafka import Kafka
from barnabas.kafka.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

_GROUPS_AT_ONCE = 100


def leaders(metadata: Any) -> dict[TopicPartition, int]:
    """The leader of each partition; those without one are left out."""
    return leaders_of(metadata.topics)


def leaders_of(topics: Iterable[Any]) -> dict[TopicPartition, int]:
    """As `leaders`, of some topics of a MetadataResponse."""
    return {
        TopicPartition(topic.name, partition.partition_index): partition.leader_id
        for topic in topics
        for partition in topic.partitions
        if partition.leader_id >= 0
    }


def offsets_at(
    kafka: Kafka,
    led: Mapping[TopicPartition, int],
    time: int | Callable[[TopicPartition], int],
    *,
    committed: bool = False,
) -> dict[TopicPartition, int]:
    """The offset of the first record from a time on, in each partition that answers.

    Args:
        led: the partitions, with their leaders.
        time: milliseconds since 1970, `EARLIEST` or `LATEST`; for all, or a function of the partition.
        committed: `LATEST` is where open transactions begin. The offset is -1 if there is no record from then
            on.
    """
    times: dict[int, dict[TopicPartition, int]] = {}
    for partition, leader in led.items():
        times.setdefault(leader, {})[partition] = time(partition) if callable(time) else time
    found: dict[TopicPartition, int] = {}
    for leader, wanted in times.items():
        try:
            response = kafka.ask(leader, offsets_request(wanted, committed=committed))
        except (ClientError, KafkaError):
            continue  # it may have gone a moment ago
        found |= {each: answer.offset for each, answer in by_partition(response) if not answer.error_code}
    return found


def committed_offsets(
    kafka: Kafka,
    groups: Collection[str],
    before: Mapping[str, dict[TopicPartition, int]] = MappingProxyType({}),
) -> dict[str, dict[TopicPartition, int]]:
    """The offsets that groups have committed; a group whose coordinator does not answer has its `before`."""
    by_coordinator: dict[int, list[str]] = {}
    for group, coordinator in kafka.coordinators(groups).items():
        by_coordinator.setdefault(coordinator, []).append(group)
    found = {group: before.get(group, {}) for group in groups}
    for coordinator, coordinated in by_coordinator.items():
        for first in range(0, len(coordinated), _GROUPS_AT_ONCE):
            some = coordinated[first : first + _GROUPS_AT_ONCE]
            try:
                for group, topics in _fetched(kafka, coordinator, some):
                    found[group] = _offsets(kafka, topics)
            except (ClientError, KafkaError):
                continue
    return found


def _fetched(kafka: Kafka, coordinator: int, groups: Sequence[str]) -> Iterable[tuple[str, Any]]:
    wanted = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
    response = kafka.ask(coordinator, OffsetFetchRequest(group_id=groups[0], topics=None, groups=wanted))
    if response.groups:
        return [(each.group_id, each.topics) for each in response.groups if not each.error_code]
    # Before version 8 a request is of one group.
    rest = [item for group in groups[1:] for item in _fetched(kafka, coordinator, [group])]
    return [(groups[0], [] if response.error_code else response.topics), *rest]


def _offsets(kafka: Kafka, topics: Any) -> dict[TopicPartition, int]:
    names = kafka.topic_names() if any(not t.name for t in topics) else {}
    return {
        TopicPartition(name, partition.partition_index): partition.committed_offset
        for topic in topics
        if (name := topic.name or names.get(topic.topic_id))
        for partition in topic.partitions
        if not partition.error_code and partition.committed_offset >= 0
    }


def lags(
    ends: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The lag of a group in each partition that it has committed."""
    return {p: max(0, ends[p] - offset) for p, offset in committed.items() if p in ends}
