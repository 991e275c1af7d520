"""The cluster's topics, as assignors need them: partition counts, racks, ids, and a hash of all these."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

import xxhash

from barnabas.base.types import BrokerId, TopicId
from barnabas.broker.coordinator.groups.assignors import Assignment, TopicSpec
from barnabas.broker.coordinator.groups.modern.member import Partitions
from barnabas.broker.metadata.image import BrokerImage, ClusterImage, PartitionState, TopicImage

_HASH_FORMAT = 0
_INT = struct.Struct("<i")
_LONG = struct.Struct("<q")


class _Hashed(NamedTuple):
    topic: TopicImage
    brokers: Mapping[BrokerId, BrokerImage]
    value: int


class HasImage(Protocol):
    """An object with a cluster image: the view of a broker, or a snapshot."""

    @property
    def image(self) -> ClusterImage: ...


class _Snapshot(NamedTuple):
    image: ClusterImage


class Topics:
    """The topics of the cluster, as the broker's current metadata image shows them.

    The object that `snapshot` returns keeps the image of that moment.
    """

    def __init__(self, view: HasImage) -> None:
        self._view = view
        self._hashes: dict[str, _Hashed] = {}

    @property
    def names(self) -> Collection[str]:
        """The names of all topics. Each change of a topic gives a new object."""
        return self._view.image.topics

    def snapshot(self) -> Topics:
        """Return a view of the current topics that later changes of the cluster do not affect."""
        return Topics(_Snapshot(self._view.image))

    def partition_count(self, names: Collection[str]) -> int:
        """Return the total number of partitions of the topics in `names` that exist."""
        topics = self._view.image.topics
        return sum(len(topics[name].partitions) for name in names if name in topics)

    def ids(self, names: Collection[str]) -> frozenset[TopicId]:
        """Return the ids of the topics in `names` that exist."""
        topics = self._view.image.topics
        return frozenset(topics[name].id for name in names if name in topics)

    def images(self, names: Collection[str]) -> list[TopicImage]:
        """Return the topics in `names` that exist, in the order of their names."""
        topics = self._view.image.topics
        return [topics[name] for name in sorted(names) if name in topics]

    def named(self, partitions: Partitions) -> Assignment:
        """Return `partitions` with topic names instead of ids, without deleted topics."""
        names = self._view.image.topic_names
        return {names[topic]: numbers for topic, numbers in partitions.items() if topic in names}

    def identified(self, assignment: Assignment) -> Partitions:
        """Return `assignment` with topic ids instead of names, without topics that do not exist."""
        topics = self._view.image.topics
        return {topics[name].id: numbers for name, numbers in assignment.items() if name in topics}

    def specs(self, names: Collection[str]) -> dict[str, TopicSpec]:
        """Return what an assignor must know of each topic in `names` that exists, by name.

        These are the number of partitions and, if any broker has a rack, the racks of their replicas.
        """
        image = self._view.image
        has_racks = any(broker.rack is not None for broker in image.brokers.values())
        return {
            name: TopicSpec(
                len(topic.partitions),
                tuple(frozenset(_racks(state, image.brokers)) for state in topic.partitions)
                if has_racks
                else (),
            )
            for name in names
            if (topic := image.topics.get(name)) is not None
        }

    def metadata_hash(self, names: Collection[str]) -> int:
        """Return a hash of the topics in `names` that exist: ids, names, partitions and racks (KIP-1101).

        The result is 0 if none of them exists.

        As in Apache Kafka, the hash is the XXH3 of the topics' own hashes in the order of their names.
        """
        image = self._view.image
        hashes = [self._hash(image, image.topics[name]) for name in sorted(names) if name in image.topics]
        return _xxh3(b"".join(map(_LONG.pack, hashes))) if hashes else 0

    def _hash(self, image: ClusterImage, topic: TopicImage) -> int:
        known = self._hashes.get(topic.name)
        if known is None or known.topic is not topic or known.brokers is not image.brokers:
            value = topic_hash(topic, image.brokers)
            known = self._hashes[topic.name] = _Hashed(topic, image.brokers, value)
        return known.value


def topic_hash(topic: TopicImage, brokers: Mapping[BrokerId, BrokerImage]) -> int:
    """Return the hash of one topic: its id, name, partitions and their racks.

    `brokers` has the racks of the replicas.
    """
    high, low = struct.unpack(">qq", topic.id)
    parts = [
        bytes([_HASH_FORMAT]),
        _LONG.pack(high),
        _LONG.pack(low),
        _text(topic.name),
        _INT.pack(len(topic.partitions)),
    ]
    for number, state in enumerate(topic.partitions):
        parts.append(_INT.pack(number))
        for rack in sorted(_racks(state, brokers)):
            parts += (_INT.pack(_length(rack)), _text(rack))
    return _xxh3(b"".join(parts))


def _racks(state: PartitionState, brokers: Mapping[BrokerId, BrokerImage]) -> list[str]:
    replicas = (brokers.get(replica) for replica in state.replicas)
    return [broker.rack for broker in replicas if broker is not None and broker.rack is not None]


def _text(text: str) -> bytes:
    return text.encode("utf-16-le") + _INT.pack(_length(text))


def _length(text: str) -> int:
    """Return the length of a string in UTF-16 code units, as Java counts it."""
    return len(text.encode("utf-16-le")) // 2


def _xxh3(data: bytes) -> int:
    value = xxhash.xxh3_64_intdigest(data)
    return value - 2**64 if value >= 2**63 else value
