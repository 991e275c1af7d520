"""Makes the next cluster image from the last one and the nodes that changed since."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TypeVar
from urllib.parse import unquote

from immutables import Map

from barnabas.metadata import znodes
from barnabas.metadata.features import FinalizedFeatures
from barnabas.metadata.image import BrokerImage, ClusterImage, ImageDelta, PartitionState, TopicImage
from barnabas.metadata.store import MetadataStore, Node
from barnabas.types import NO_BROKER, BrokerId, TopicId, topic_id_from_str

_TOPIC_PATH = re.compile(rf"{znodes.TOPICS}/(?P<topic>[^/]+)(?:/partitions/(?P<partition>\d+)/state)?")
_NAMED = (
    znodes.BROKER_IDS,
    znodes.TOPIC_CONFIGS,
    znodes.BROKER_CONFIGS,
    znodes.GROUP_CONFIGS,
    znodes.DELETED_TOPICS,
)
_NAMED_PATH = re.compile(rf"(?P<folder>{'|'.join(_NAMED)})/(?P<name>[^/]+)")

#: the folders that an image is made of
_FOLDERS = (*_NAMED, znodes.TOPICS)

_K = TypeVar("_K")
_V = TypeVar("_V")


async def all_paths(store: MetadataStore, image: ClusterImage) -> set[str]:
    """What has to be read to know everything again: what is in the store, and what was when `image` was made.

    Raises:
        StoreError: the store cannot be read.
    """
    paths = {znodes.CLUSTER_ID, znodes.CONTROLLER, znodes.FEATURES}
    for folder in _FOLDERS:
        paths.update(f"{folder}/{name}" for name in await store.children(folder))
    paths.update(map(znodes.topic, image.topics))
    paths.update(map(znodes.broker, image.brokers))
    paths.update(map(znodes.topic_config, image.topic_configs))
    paths.update(map(znodes.broker_config, image.broker_configs))
    paths.update(map(znodes.group_config, image.group_configs))
    paths.update(map(znodes.deleted_topic, image.deleted_topics))
    return paths


class ImageBuilder:
    """Shares with the last image all that has not changed: the cost follows what has."""

    def __init__(self, store: MetadataStore, before: ClusterImage) -> None:
        self._store = store
        self._before = before

    async def apply(self, paths: Collection[str]) -> ImageDelta:
        """Read the nodes at `paths` again; paths of no interest are passed over.

        Raises:
            StoreError: the store cannot be read.
        """
        names: dict[str, dict[str, None]] = {}
        topics: dict[str, set[int] | None] = {}
        for path in sorted(paths):  # the image is the same at every run
            if match := _NAMED_PATH.fullmatch(path):
                names.setdefault(match["folder"], {})[match["name"]] = None
            elif match := _TOPIC_PATH.fullmatch(path):
                _add_topic(topics, match["topic"], match["partition"])
        before = self._before
        brokers = await self._brokers(names.get(znodes.BROKER_IDS, ()))
        topic_images = await self._topics(topics)
        topic_configs = await self._configs(znodes.TOPIC_CONFIGS, names, before.topic_configs)
        broker_configs = await self._configs(znodes.BROKER_CONFIGS, names, before.broker_configs)
        group_configs = await self._configs(znodes.GROUP_CONFIGS, names, before.group_configs)
        after = ClusterImage(
            cluster_id=await self._cluster_id() if znodes.CLUSTER_ID in paths else before.cluster_id,
            controller_id=await self._controller() if znodes.CONTROLLER in paths else before.controller_id,
            brokers=brokers,
            topics=topic_images,
            topic_names=self._topic_names(topics, topic_images),
            topic_configs=topic_configs,
            broker_configs=broker_configs,
            group_configs=group_configs,
            features=await self._features() if znodes.FEATURES in paths else before.features,
            deleted_topics=await self._deleted_topics(names.get(znodes.DELETED_TOPICS, ())),
        )
        return ImageDelta(
            before,
            after,
            topics=frozenset(topics),
            partitions={
                name: sorted(number for number in numbers if number < len(topic_images[name].partitions))
                for name, numbers in topics.items()
                if numbers is not None and name in topic_images
            },
            topic_configs=frozenset(names.get(znodes.TOPIC_CONFIGS, ())),
            brokers=znodes.BROKER_IDS in names,
            broker_configs=znodes.BROKER_CONFIGS in names,
        )

    async def _cluster_id(self) -> str:
        node = await self._store.exists(znodes.CLUSTER_ID)
        return znodes.decode_cluster_id(node.data) if node else ""

    async def _controller(self) -> BrokerId:
        node = await self._store.exists(znodes.CONTROLLER)
        return znodes.decode_controller(node.data) if node else NO_BROKER

    async def _features(self) -> FinalizedFeatures:
        node = await self._store.exists(znodes.FEATURES)
        if node is None:
            return FinalizedFeatures()
        return FinalizedFeatures(znodes.decode_features(node.data), node.version + 1)

    async def _brokers(self, names: Collection[str]) -> Mapping[BrokerId, BrokerImage]:
        if not names:
            return self._before.brokers
        brokers = dict(self._before.brokers)
        for name, node in await self._read(znodes.BROKER_IDS, names):
            if node is None:
                brokers.pop(int(name), None)
            else:
                brokers[int(name)] = znodes.decode_broker(int(name), node)
        return brokers

    async def _configs(
        self, folder: str, names: Mapping[str, Collection[str]], before: Mapping[str, Mapping[str, str]]
    ) -> Mapping[str, Mapping[str, str]]:
        if folder not in names:
            return before
        read = await self._read(folder, names[folder])
        configs = _map(before).mutate()
        for encoded, node in read:
            name = unquote(encoded)
            if node is None:
                configs.pop(name, None)
            else:
                configs[name] = znodes.decode_config(node.data)
        return configs.finish()

    async def _deleted_topics(self, names: Collection[str]) -> Mapping[TopicId, frozenset[BrokerId]]:
        if not names:
            return self._before.deleted_topics
        read = await self._read(znodes.DELETED_TOPICS, names)
        deleted = _map(self._before.deleted_topics).mutate()
        for name, node in read:
            if node is None:
                deleted.pop(topic_id_from_str(name), None)
            else:
                deleted[topic_id_from_str(name)] = znodes.decode_deleted_topic(node.data)
        return deleted.finish()

    async def _read(self, folder: str, names: Collection[str]) -> list[tuple[str, Node | None]]:
        nodes = await self._store.read([f"{folder}/{name}" for name in names])
        return list(zip(names, nodes, strict=True))

    async def _topics(self, changed: dict[str, set[int] | None]) -> Mapping[str, TopicImage]:
        if not changed:
            return self._before.topics
        before = self._before.topics
        topics: dict[str, TopicImage | None] = {name: before.get(name) for name in changed}
        whole = [name for name, numbers in changed.items() if numbers is None or topics[name] is None]
        for name, node in await self._read(znodes.TOPICS, whole):
            topics[name] = None if node is None else _without_states(name, node)
        states = [
            (name, number)
            for name, topic in topics.items()
            if topic is not None
            for number in (range(len(topic.partitions)) if name in whole else changed[name] or ())
        ]
        nodes = await self._store.read([znodes.partition_state(*state) for state in states])
        read: dict[str, dict[int, Node | None]] = {}
        for (name, number), node in zip(states, nodes, strict=True):
            read.setdefault(name, {})[number] = node
        for name, by_number in read.items():
            topic = topics[name]
            topics[name] = topic and _with_states(topic, by_number)
        after = _map(before).mutate()
        for name, topic in topics.items():
            if topic is None:
                after.pop(name, None)
            else:
                after[name] = topic
        return after.finish()

    def _topic_names(
        self, changed: Collection[str], topics: Mapping[str, TopicImage]
    ) -> Mapping[TopicId, str]:
        if not changed:
            return self._before.topic_names
        names = _map(self._before.topic_names).mutate()
        for name in changed:
            if (gone := self._before.topics.get(name)) is not None:
                names.pop(gone.id, None)
            if (topic := topics.get(name)) is not None:
                names[topic.id] = name
        return names.finish()


def _map(mapping: Mapping[_K, _V]) -> Map[_K, _V]:
    return mapping if isinstance(mapping, Map) else Map(mapping)


def _without_states(name: str, node: Node) -> TopicImage:
    assignment = znodes.decode_topic(node.data)
    partitions = (PartitionState(replicas, isr=(), leader=NO_BROKER) for replicas in assignment.replicas)
    return TopicImage(name, assignment.topic_id, tuple(partitions))


def _with_states(topic: TopicImage, nodes: Mapping[int, Node | None]) -> TopicImage | None:
    """None when a state is gone: the topic was deleted while it was read, and the news of it comes next."""
    partitions = list(topic.partitions)
    for number, node in nodes.items():
        if node is None:
            return None
        if number < len(partitions):  # else: of a topic that grew, whose own node is news too
            partitions[number] = znodes.decode_partition_state(partitions[number].replicas, node)
    return TopicImage(topic.name, topic.id, tuple(partitions))


def _add_topic(topics: dict[str, set[int] | None], name: str, partition: str | None) -> None:
    if partition is None:
        topics[name] = None
    else:
        numbers = topics.setdefault(name, set())
        if numbers is not None:
            numbers.add(int(partition))
