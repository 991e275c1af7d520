"""The partitions of a share group: initializing, initialized or deleting.

A new partition is *initializing* until the share coordinator has stored its first state. Members get only
*initialized* partitions. A topic is *deleting* until the share coordinator has deleted all its states.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias, TypeVar

from barnabas.base.types import TopicId
from barnabas.broker.coordinator.share_state.persister import SharePartitionKey
from barnabas.broker.metadata.image import TopicImage

V = TypeVar("V")


class StateTopic(NamedTuple):
    """A topic's name, and the numbers of its partitions in one state: initializing, or initialized."""

    name: str
    partitions: frozenset[int]


StateTopics: TypeAlias = Mapping[TopicId, StateTopic]

NO_TOPICS: StateTopics = MappingProxyType({})
NO_NAMES: Mapping[TopicId, str] = MappingProxyType({})


class InitializationStates(NamedTuple):
    """The partitions of one share group, as an immutable value. One record stores all of them."""

    initializing: StateTopics = NO_TOPICS
    initialized: StateTopics = NO_TOPICS
    #: the names of topics by id
    deleting: Mapping[TopicId, str] = NO_NAMES

    @property
    def is_empty(self) -> bool:
        return not (self.initializing or self.initialized or self.deleting)

    def known(self, topic: TopicId) -> frozenset[int]:
        """Return the initialized and the initializing partitions of a topic."""
        return _numbers(self.initialized, topic) | _numbers(self.initializing, topic)

    def missing(self, topics: Iterable[TopicImage]) -> StateTopics:
        """Return the partitions of `topics` that are neither initialized nor initializing."""
        missing = {}
        for topic in topics:
            known = self.known(topic.id)
            if len(known) < len(topic.partitions):
                numbers = frozenset(range(len(topic.partitions))) - known
                missing[topic.id] = StateTopic(topic.name, numbers)
        return missing

    def with_initializing(self, topics: StateTopics) -> InitializationStates:
        """Return a copy in which the partitions in `topics` are initializing.

        The `topics` are no longer deleting.
        """
        return self._replace(
            initializing=_united(self.initializing, topics), deleting=_without(self.deleting, topics)
        )

    def with_initialized(self, topics: StateTopics) -> InitializationStates:
        """Return a copy in which the partitions in `topics` are initialized.

        The `topics` are no longer deleting.
        """
        return InitializationStates(
            _subtracted(self.initializing, topics),
            _united(self.initialized, topics),
            _without(self.deleting, topics),
        )

    def with_deleting(self, topics: Mapping[TopicId, str]) -> InitializationStates:
        """Return a copy in which `topics` are deleting, and none of their partitions is initialized."""
        return InitializationStates(
            _without(self.initializing, topics),
            _without(self.initialized, topics),
            {**self.deleting, **topics},
        )

    def without(self, topics: Collection[TopicId]) -> InitializationStates:
        """Return a copy without `topics`."""
        return InitializationStates(
            _without(self.initializing, topics),
            _without(self.initialized, topics),
            _without(self.deleting, topics),
        )

    def names(self) -> dict[TopicId, str]:
        """Return the names of all topics in any state, by id."""
        names = {id: topic.name for id, topic in {**self.initializing, **self.initialized}.items()}
        return {**self.deleting, **names}


def keys(group_id: str, topics: StateTopics) -> Iterator[SharePartitionKey]:
    """Yield the share coordinator's key of each partition in `topics`."""
    for topic_id, topic in topics.items():
        for partition in sorted(topic.partitions):
            yield SharePartitionKey(group_id, topic_id, partition)


def topics_of(keys: Iterable[SharePartitionKey], names: Mapping[TopicId, str]) -> StateTopics:
    """Return the partitions of `keys`, grouped by topic id. `names` has each topic's name."""
    numbers: dict[TopicId, set[int]] = {}
    for _, topic_id, partition in keys:
        numbers.setdefault(topic_id, set()).add(partition)
    return {id: StateTopic(names[id], frozenset(found)) for id, found in numbers.items()}


def _numbers(topics: StateTopics, topic: TopicId) -> frozenset[int]:
    found = topics.get(topic)
    return frozenset() if found is None else found.partitions


def _united(one: StateTopics, other: StateTopics) -> StateTopics:
    return {
        **one,
        **{id: StateTopic(name, numbers | _numbers(one, id)) for id, (name, numbers) in other.items()},
    }


def _subtracted(one: StateTopics, other: StateTopics) -> StateTopics:
    return {
        id: StateTopic(name, left)
        for id, (name, numbers) in one.items()
        if (left := numbers - _numbers(other, id))
    }


def _without(topics: Mapping[TopicId, V], gone: Collection[TopicId]) -> dict[TopicId, V]:
    return {id: topic for id, topic in topics.items() if id not in gone}
