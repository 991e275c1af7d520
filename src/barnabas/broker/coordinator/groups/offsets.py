"""The offsets that groups have committed, and their expiry (KIP-211).

Offsets of topics that members subscribe to do not expire. While a classic group with members rebalances, or
has another protocol type than "consumer", none of its offsets expires. Other offsets expire after
``offsets.retention.minutes``:

- In a classic group without members, this time begins when the last member leaves.
- For topics without subscribers, and for consumers that assign partitions to themselves, it begins at the
  commit.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Protocol, TypeAlias

from barnabas.base.types import ZERO_TOPIC_ID, TopicId
from barnabas.broker.coordinator.groups.codec import NO_EXPIRY, CommittedOffset, OffsetKey

GroupOffsets: TypeAlias = dict[str, dict[int, CommittedOffset]]


class Group(Protocol):
    """The state of a group on which the expiry of its offsets depends."""

    group_id: str

    def topics_in_use(self) -> Container[str]: ...

    def offsets_idle_since(self) -> Callable[[CommittedOffset], int] | None: ...


class OffsetStore:
    """The committed offsets of one shard's groups, by group, topic and partition."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupOffsets] = {}

    def put(self, key: OffsetKey, committed: CommittedOffset) -> None:
        self._groups.setdefault(key.group_id, {}).setdefault(key.topic, {})[key.partition] = committed

    def remove(self, key: OffsetKey) -> None:
        topics = self._groups.get(key.group_id, {})
        partitions = topics.get(key.topic, {})
        partitions.pop(key.partition, None)
        if not partitions:
            topics.pop(key.topic, None)
        if not topics:
            self._groups.pop(key.group_id, None)

    def get(self, key: OffsetKey, topic_id: TopicId = ZERO_TOPIC_ID) -> CommittedOffset | None:
        """Return a committed offset; None if there is none, or if it was committed for another topic id.

        For example, a deleted topic with the same name had another id. The id of all zeros matches any topic.
        """
        committed = self._groups.get(key.group_id, {}).get(key.topic, {}).get(key.partition)
        if committed is None or not _same_topic(committed.topic_id, topic_id):
            return None
        return committed

    def of_group(self, group_id: str) -> GroupOffsets:
        """Return all committed offsets of a group, by topic and partition.

        The result is not a copy: later commits change it.
        """
        return self._groups.get(group_id, {})

    def keys(self, group_id: str) -> Iterator[OffsetKey]:
        """Yield the keys of all offsets of a group."""
        for topic, partitions in self.of_group(group_id).items():
            for partition in partitions:
                yield OffsetKey(group_id, topic, partition)

    def of_topics(self, group_id: str, topics: set[str]) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """Yield a group's offsets of these topics."""
        of_group = self.of_group(group_id)
        for topic in sorted(of_group.keys() & topics):
            for partition, committed in of_group[topic].items():
                yield OffsetKey(group_id, topic, partition), committed

    def expired(self, group: Group, now_ms: int, offsets_retention_ms: int) -> list[OffsetKey]:
        """Return the keys of a group's offsets that have expired at `now_ms` (ms since 1970).

        - An offset whose commit has set a time of expiry expires at that time.
        - Any other offset expires `offsets_retention_ms` after the start of its retention: see
          `group.offsets_idle_since`.
        - Offsets of topics that members subscribe to do not expire.
        - While a classic group with members rebalances, or has another protocol type than "consumer", none of
          its offsets expires, and the result is empty.
        """
        idle_since = group.offsets_idle_since()
        if idle_since is None:
            return []
        in_use = group.topics_in_use()
        return [
            OffsetKey(group.group_id, topic, partition)
            for topic, partitions in self.of_group(group.group_id).items()
            if topic not in in_use
            for partition, committed in partitions.items()
            if now_ms >= _expiry(committed, idle_since(committed), offsets_retention_ms)
        ]


def _expiry(committed: CommittedOffset, idle_since: int, offsets_retention_ms: int) -> int:
    return idle_since + offsets_retention_ms if committed.expires_ms == NO_EXPIRY else committed.expires_ms


def _same_topic(stored: TopicId, asked: TopicId) -> bool:
    """Whether a commit's topic id (`stored`) and a request's topic id (`asked`) can be of the same topic.

    An older commit or request has no id (all zeros), which matches every topic.
    """
    return ZERO_TOPIC_ID in (stored, asked) or stored == asked
