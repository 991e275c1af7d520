"""The state of a cluster at a moment: its brokers, topics and groups, and rates between two moments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from barnabas.base.errors import KafkaError
from barnabas.base.types import TopicPartition
from barnabas.client.admin import Admin
from barnabas.client.admin_types import ClusterDescription, TopicDescription
from barnabas.client.lag import lag_of


@dataclass(frozen=True, slots=True)
class Group:
    """A group's state. For each topic, also the sum of its committed offsets and the sum of its lag."""

    state: str
    committed: Counter[str]
    lag: Counter[str]


@dataclass(frozen=True, slots=True)
class Overview:
    """A snapshot of a cluster: brokers, topics with sums over their partitions, and groups by name."""

    #: time of the request, in monotonic seconds
    time: float
    cluster: ClusterDescription
    topics: Sequence[TopicDescription]
    #: for each topic, sums over its partitions: of the end offsets, and of the bytes on the leaders' disks.
    #: A topic whose size no broker reports is missing.
    ends: Counter[str]
    sizes: Counter[str]
    groups: dict[str, Group]
    #: number of groups that were left out
    more_groups: int

    @property
    def without_leader(self) -> int:
        return sum(each.leader is None for topic in self.topics for each in topic.partitions)

    @property
    def out_of_sync(self) -> int:
        return sum(len(each.isr) < len(each.replicas) for topic in self.topics for each in topic.partitions)


def look(admin: Admin, now: float, *, max_groups: int) -> Overview:
    """Request the state of a cluster's brokers, topics and groups, and return it.

    Args:
        now: the time of the overview, in monotonic seconds.
        max_groups: largest number of groups in the result. Each costs one request. Groups with members come
            first. A group whose committed offsets the broker does not return is left out.

    Raises:
        KafkaError: a broker rejects a request.
        ClientError: no broker answers in time.
    """
    cluster = admin.cluster()
    topics = admin.describe_topics(admin.topics(internal=False))
    partitions = [
        TopicPartition(topic.name, each.partition)
        for topic in topics
        for each in topic.partitions
        if each.leader is not None
    ]
    latest = admin.offsets(partitions, "latest", skip_failed=True)
    ends: Counter[str] = Counter()
    for partition, offset in latest.items():
        ends[partition.topic] += offset
    sizes: Counter[str] = Counter()
    for partition, size in admin.sizes(topics).items():
        sizes[partition.topic] += size
    listed = sorted(admin.groups(), key=lambda group: (group.state in ("EMPTY", "Empty", "DEAD"), group))
    groups = {}
    for group in listed[:max_groups]:
        try:
            committed = admin.group_offsets(group.group)
        except KafkaError:
            continue  # it has gone meanwhile, or its coordinator has
        groups[group.group] = _group(group.state, committed, latest)
    return Overview(now, cluster, topics, ends, sizes, groups, max(0, len(listed) - max_groups))


def _group(state: str, committed: dict[TopicPartition, int], latest: dict[TopicPartition, int]) -> Group:
    positions: Counter[str] = Counter()
    lag: Counter[str] = Counter()
    lags = lag_of(latest, committed)
    for partition, offset in committed.items():
        positions[partition.topic] += offset
        lag[partition.topic] += lags.get(partition, 0)
    return Group(state, positions, lag)


def rate(now: int, before: int | None, seconds: float) -> float | None:
    """Return by how much a number grew each second: from `before` to `now`, in `seconds` seconds.

    Return None if `before` is None, if the number shrank, or if `seconds` is not positive.
    """
    return None if before is None or now < before or seconds <= 0 else (now - before) / seconds
