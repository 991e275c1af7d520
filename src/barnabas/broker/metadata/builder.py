"""Builds cluster images. A cluster image is a broker's immutable copy of the cluster's metadata.

The metadata store (ZooKeeper or the embedded store) has the metadata in a tree of nodes, such as
``/brokers/topics/orders``. When nodes have changed, `ImageBuilder` reads only these, and builds the next
image from them and from the previous image.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import ParamSpec, TypeVar
from urllib.parse import unquote

from immutables import Map

from barnabas.base.text import logger_of
from barnabas.base.types import NO_BROKER, BrokerId, TopicId, topic_id_from_str
from barnabas.broker.logins.delegation_tokens import DelegationToken
from barnabas.broker.metadata import acl_nodes, token_nodes, znodes
from barnabas.broker.metadata.features import FinalizedFeatures
from barnabas.broker.metadata.image import (
    Admission,
    BrokerImage,
    ClusterImage,
    ImageDelta,
    PartitionState,
    TopicImage,
)
from barnabas.broker.metadata.store import DamagedNodeError, MetadataStore, StoreNode
from barnabas.broker.quotas import DEFAULT, QuotaEntity, QuotaKind
from barnabas.kafka.security.acls import Acls, ResourcePattern

_TOPIC_PATH = re.compile(rf"{znodes.TOPICS}/(?P<topic>[^/]+)(?:/partitions/(?P<partition>\d+)/state)?")
_NAMED = (
    znodes.BROKER_IDS,
    znodes.TOPIC_CONFIGS,
    znodes.BROKER_CONFIGS,
    znodes.GROUP_CONFIGS,
    znodes.CLIENT_METRICS_CONFIGS,
    znodes.USER_CONFIGS,
    znodes.DELETED_TOPICS,
    token_nodes.FOLDER,
)
#: the folders with quotas only; nodes of users also have quotas
_QUOTAS = (znodes.CLIENT_CONFIGS, znodes.IP_CONFIGS)
_NAMED_PATH = re.compile(rf"(?P<folder>{'|'.join(_NAMED)})/(?P<name>[^/]+)")

#: the folders that an image is made of
_FOLDERS = (*_NAMED, *_QUOTAS, znodes.TOPICS, *acl_nodes.FOLDERS)

#: how many states of partitions are read, or decoded, in one turn of the event loop
_STATES_A_TURN = 500
#: how many partitions a log line names
_NAMED_PARTITIONS = 5

_QUOTA_NAMES = frozenset(kind.value for kind in QuotaKind)

log = logger_of(__name__)

_K = TypeVar("_K")
_V = TypeVar("_V")
_P = ParamSpec("_P")


async def all_paths(store: MetadataStore, image: ClusterImage) -> set[str]:
    """Return the paths of all nodes of the metadata store to read for a new image.

    The result has the paths of all nodes in the store, and of all nodes from which `image` was built. Such a
    node can be missing from the store now. It must be read, too, so that the new image lacks its value.

    Args:
        store: the metadata store.
        image: the previous image.

    Raises:
        StoreError: the store cannot be read.
    """
    paths = {
        znodes.CLUSTER_ID,
        znodes.CONTROLLER,
        znodes.CONTROLLER_EPOCH,
        znodes.BROKER_EPOCHS,
        znodes.FEATURES,
        znodes.PRODUCER_ID_BLOCK,
    }
    for folder in _FOLDERS:
        paths.update(f"{folder}/{name}" for name in await store.children(folder))
    users = [path for path in paths if path.startswith(f"{znodes.USER_CONFIGS}/")]
    paths.update(await _quotas_below(store, users))
    paths.update(map(znodes.topic, image.topics))
    paths.update(map(znodes.broker, image.brokers))
    paths.update(map(znodes.topic_config, image.topic_configs))
    paths.update(map(znodes.broker_config, image.broker_configs))
    paths.update(map(znodes.group_config, image.group_configs))
    paths.update(map(znodes.client_metrics_config, image.client_metrics))
    paths.update(map(znodes.user_config, image.user_configs))
    paths.update(map(znodes.quota_config, image.client_quotas))
    paths.update(map(znodes.deleted_topic, image.deleted_topics))
    paths.update(map(acl_nodes.path, image.acls.rules))
    paths.update(map(token_nodes.path, image.delegation_tokens))
    return paths


async def _quotas_below(store: MetadataStore, users: Sequence[str]) -> list[str]:
    """Return the paths of the nodes that have the quotas for a user together with a client id.

    `users` has the paths of the nodes of all users, such as ``/config/users/alice``.
    """
    folders = [f"{user}/clients" for user in users]
    found = await store.read(folders)
    return [
        f"{folder}/{name}"
        for folder, node in zip(folders, found, strict=True)
        if node is not None
        for name in await store.children(folder)
    ]


class ImageBuilder:
    """Builds a new metadata image from the previous image and the changed nodes.

    The two images share unchanged parts, so the cost depends only on the number of changes. A node whose data
    is damaged keeps its previous value in the image. A node without a previous value is left out. If the node
    of a topic is damaged, the states of its partitions count as damaged, too. The store may have states of
    another topic with the same name.

    Args:
        store: store from which the changed nodes are read.
        before: the previous image.
        damaged: paths of the nodes whose data was damaged for the previous image.
    """

    def __init__(self, store: MetadataStore, before: ClusterImage, damaged: Set[str]) -> None:
        self._store = store
        self._before = before
        self._damaged_before = damaged
        #: the reason for each damaged node, by its path
        self.damaged: dict[str, str] = {}

    async def apply(self, paths: Collection[str]) -> ImageDelta:
        """Read the nodes at `paths` again. Return the change from the previous metadata image to the new one.

        Paths of nodes that are not part of an image are ignored.

        Raises:
            StoreError: the store cannot be read.
        """
        names: dict[str, dict[str, None]] = {}
        topics: dict[str, set[int] | None] = {}
        quotas: dict[str, QuotaEntity] = {}
        acls: dict[str, ResourcePattern] = {}
        for path in sorted(paths):  # the image is the same at every run
            if match := _NAMED_PATH.fullmatch(path):
                names.setdefault(match["folder"], {})[match["name"]] = None
            elif match := _TOPIC_PATH.fullmatch(path):
                name = match["topic"]
                # A topic whose node was damaged has no current states: read all of them, or none.
                was_damaged = znodes.topic(name) in self._damaged_before
                _add_topic(topics, name, None if was_damaged else match["partition"])
            elif resource := acl_nodes.resource_of(path):
                acls[path] = resource
            if path.startswith("/config/") and (entity := znodes.quota_entity(path)) is not None:
                quotas[path] = entity
        before = self._before
        # Before the partitions: who sees a broker admitted sees what the controller has changed for it.
        admitted = await self._admitted() if znodes.BROKER_EPOCHS in paths else before.admitted
        brokers = await self._brokers(names.get(znodes.BROKER_IDS, ()))
        topic_images = await self._topics(topics)
        topic_names = self._topic_names(topics, topic_images)
        deleted_topics, deleted = await self._deleted_topics(
            names.get(znodes.DELETED_TOPICS, ()), topic_names
        )
        topic_configs = await self._configs(znodes.TOPIC_CONFIGS, names, before.topic_configs)
        broker_configs = await self._configs(znodes.BROKER_CONFIGS, names, before.broker_configs)
        group_configs = await self._configs(znodes.GROUP_CONFIGS, names, before.group_configs)
        client_metrics = await self._configs(znodes.CLIENT_METRICS_CONFIGS, names, before.client_metrics)
        names.get(znodes.USER_CONFIGS, {}).pop(DEFAULT.value, None)  # it is no user, it only has quotas
        user_configs = await self._configs(znodes.USER_CONFIGS, names, before.user_configs)
        controller_epoch = before.controller_epoch, before.controller_epoch_version
        if znodes.CONTROLLER_EPOCH in paths:
            controller_epoch = await self._controller_epoch()
        after = ClusterImage(
            cluster_id=await self._cluster_id() if znodes.CLUSTER_ID in paths else before.cluster_id,
            controller_id=await self._controller() if znodes.CONTROLLER in paths else before.controller_id,
            controller_epoch=controller_epoch[0],
            controller_epoch_version=controller_epoch[1],
            last_producer_id=(
                await self._last_producer_id()
                if znodes.PRODUCER_ID_BLOCK in paths
                else before.last_producer_id
            ),
            brokers=brokers,
            admitted=admitted,
            topics=topic_images,
            topic_names=topic_names,
            topic_configs=topic_configs,
            broker_configs=broker_configs,
            group_configs=group_configs,
            client_metrics=client_metrics,
            user_configs=user_configs,
            client_quotas=await self._client_quotas(quotas),
            acls=await self._acls(acls),
            delegation_tokens=await self._delegation_tokens(names.get(token_nodes.FOLDER, ())),
            features=await self._features() if znodes.FEATURES in paths else before.features,
            deleted_topics=deleted_topics,
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
            brokers=znodes.BROKER_IDS in names or znodes.BROKER_EPOCHS in paths,
            broker_configs=znodes.BROKER_CONFIGS in names,
            client_quotas=frozenset(quotas.values()),
            deleted=deleted,
        )

    def _decoded(
        self, path: str, kept: _V, decode: Callable[_P, _V], *args: _P.args, **kwargs: _P.kwargs
    ) -> _V:
        """Return the decoded data of the node at `path`; `kept` if the data is damaged."""
        try:
            return znodes.decoded(path, decode, *args, **kwargs)
        except DamagedNodeError as error:
            self.damaged[path] = str(error)
            return kept

    # Essential values are kept when their node is gone: `lost_nodes` restores the node.

    async def _cluster_id(self) -> str:
        node = await self._store.exists(znodes.CLUSTER_ID)
        if node is None:
            return self._before.cluster_id
        return self._decoded(znodes.CLUSTER_ID, self._before.cluster_id, znodes.decode_cluster_id, node.data)

    async def _controller(self) -> BrokerId:
        node = await self._store.exists(znodes.CONTROLLER)
        if node is None:
            return NO_BROKER
        return self._decoded(
            znodes.CONTROLLER, self._before.controller_id, znodes.decode_controller, node.data
        )

    async def _controller_epoch(self) -> tuple[int, int]:
        before = self._before.controller_epoch, self._before.controller_epoch_version
        node = await self._store.exists(znodes.CONTROLLER_EPOCH)
        if node is None:
            return before
        epoch = self._decoded(znodes.CONTROLLER_EPOCH, before[0], znodes.decode_controller_epoch, node.data)
        return max(before[0], epoch), max(before[1], node.version)

    async def _last_producer_id(self) -> int:
        before = self._before.last_producer_id
        node = await self._store.exists(znodes.PRODUCER_ID_BLOCK)
        if node is None:
            return before
        _, last = self._decoded(
            znodes.PRODUCER_ID_BLOCK, (before, before), znodes.decode_producer_id_block, node.data
        )
        return max(before, last)

    async def _admitted(self) -> Mapping[BrokerId, Admission]:
        node = await self._store.exists(znodes.BROKER_EPOCHS)
        if node is None:
            return self._before.admitted
        before = dict(self._before.admitted)
        return self._decoded(znodes.BROKER_EPOCHS, before, znodes.decode_broker_epochs, node.data)

    async def _features(self) -> FinalizedFeatures:
        node = await self._store.exists(znodes.FEATURES)
        if node is None:
            return self._before.features
        features = FinalizedFeatures({}, node.version + 1)
        return self._decoded(
            znodes.FEATURES,
            self._before.features,
            lambda data: features._replace(levels=znodes.decode_features(data)),
            node.data,
        )

    async def _brokers(self, names: Collection[str]) -> Mapping[BrokerId, BrokerImage]:
        if not names:
            return self._before.brokers
        brokers = dict(self._before.brokers)
        for name, node in await self._read(znodes.BROKER_IDS, names):
            path = f"{znodes.BROKER_IDS}/{name}"
            broker = self._decoded(path, NO_BROKER, int, name)
            if node is None:
                self.damaged.pop(path, None)  # a wrong name is no damage without its node
                brokers.pop(broker, None)
            if node is None or broker == NO_BROKER:
                continue
            image = self._decoded(path, brokers.get(broker), znodes.decode_broker, broker, node)
            if image is not None:
                brokers[broker] = image
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
                continue
            config = self._decoded(f"{folder}/{encoded}", configs.get(name), znodes.decode_config, node.data)
            if config is not None:
                configs[name] = config
        return configs.finish()

    async def _client_quotas(
        self, changed: Mapping[str, QuotaEntity]
    ) -> Mapping[QuotaEntity, Mapping[str, str]]:
        """Return the quotas of all clients, by entity. Read the `changed` nodes again.

        `changed` has the entities of the changed nodes, by path. The credentials in the nodes of users are
        left out of the result.
        """
        if not changed:
            return self._before.client_quotas
        quotas = _map(self._before.client_quotas).mutate()
        nodes = await self._store.read(list(changed))
        for (path, entity), node in zip(changed.items(), nodes, strict=True):
            if node is None:
                quotas.pop(entity, None)
                continue
            texts = self._decoded(path, quotas.get(entity), znodes.decode_config, node.data)
            if texts is not None:
                quotas[entity] = {name: text for name, text in texts.items() if name in _QUOTA_NAMES}
        return quotas.finish()

    async def _acls(self, changed: Mapping[str, ResourcePattern]) -> Acls:
        if not changed:
            return self._before.acls
        nodes = await self._store.read(list(changed))
        return self._before.acls.changed(
            {
                resource: None if node is None else acl_nodes.decode(path, node.data)
                for (path, resource), node in zip(changed.items(), nodes, strict=True)
            }
        )

    async def _delegation_tokens(self, names: Collection[str]) -> Mapping[str, DelegationToken]:
        if not names:
            return self._before.delegation_tokens
        tokens = _map(self._before.delegation_tokens).mutate()
        for name, node in await self._read(token_nodes.FOLDER, names):
            token = None if node is None else token_nodes.decode(name, node.data)
            if token is None:
                tokens.pop(name, None)
            else:
                tokens[name] = token
        return tokens.finish()

    async def _deleted_topics(
        self, names: Collection[str], topic_names: Mapping[TopicId, str]
    ) -> tuple[Mapping[TopicId, frozenset[BrokerId]], frozenset[TopicId]]:
        """Read the changed deletion notes from the store, and return (notes, removed).

        A deletion note is a node for a deleted topic. The topic and its note may both be gone before this
        broker reads the store. `removed` then still tells the broker of the deletion.

        Args:
            names: names of the changed notes, which are topic ids.
            topic_names: the names of all topics in the new image, by topic id.

        Returns:
            notes: for each deletion note, by topic id, the brokers that may still have folders of the topic.
                A removed note stays in `notes`, with an empty set of brokers, while the new image still has
                the topic.
            removed: the topic ids of the notes that were removed since the previous image.
        """
        before = self._before.deleted_topics
        kept = [topic_id for topic_id, brokers in before.items() if not brokers]
        if not names and not kept:
            return before, frozenset()
        deleted = _map(before).mutate()
        gone = set()
        for name, node in await self._read(znodes.DELETED_TOPICS, names):
            path = f"{znodes.DELETED_TOPICS}/{name}"
            topic_id = self._decoded(path, None, topic_id_from_str, name)
            if node is None:
                self.damaged.pop(path, None)  # a wrong name is no damage without its node
            if topic_id is None:
                continue
            if node is not None:
                brokers = self._decoded(path, deleted.get(topic_id), znodes.decode_deleted_topic, node.data)
                if brokers is not None:
                    deleted[topic_id] = brokers
            else:
                gone.add(topic_id)
                deleted[topic_id] = frozenset()
                kept.append(topic_id)
        for topic_id in kept:
            if topic_id not in topic_names and not deleted[topic_id]:
                del deleted[topic_id]
        return deleted.finish(), frozenset(gone)

    async def _read(self, folder: str, names: Collection[str]) -> list[tuple[str, StoreNode | None]]:
        nodes = await self._store.read([f"{folder}/{name}" for name in names])
        return list(zip(names, nodes, strict=True))

    async def _topics(self, changed: dict[str, set[int] | None]) -> Mapping[str, TopicImage]:
        if not changed:
            return self._before.topics
        before = self._before.topics
        topics: dict[str, TopicImage | None] = {name: before.get(name) for name in changed}
        whole = [name for name, numbers in changed.items() if numbers is None or topics[name] is None]
        for name, node in await self._read(znodes.TOPICS, whole):
            topics[name] = self._without_states(name, node)
        await self._read_states(topics, {name: None if name in whole else changed[name] for name in topics})
        after = _map(before).mutate()
        for name, topic in topics.items():
            if topic is None:
                after.pop(name, None)
            else:
                after[name] = topic
        return after.finish()

    async def _read_states(
        self, topics: dict[str, TopicImage | None], wanted: Mapping[str, Collection[int] | None]
    ) -> None:
        """Read the states of partitions, and add them to `topics`.

        `wanted` has the partitions by topic; None means all partitions. Topics whose nodes are damaged are
        left out.

        If a state is missing, read the node of its topic again, because the topic may have been deleted. If
        the topic was deleted, set it to None in `topics`. If it was created again, read the new topic. If the
        topic is unchanged, a user has deleted the state, because a controller deletes all nodes of a topic
        together. The partition then has no state (`PartitionState.is_missing`).
        """
        states = [
            (name, number)
            for name, numbers in wanted.items()
            if (topic := topics[name]) is not None and znodes.topic(name) not in self.damaged
            for number in (range(len(topic.partitions)) if numbers is None else numbers)
        ]
        nodes: list[StoreNode | None] = []
        for start in range(0, len(states), _STATES_A_TURN):
            if start:
                await asyncio.sleep(0)
            some = states[start : start + _STATES_A_TURN]
            nodes += await self._store.read([znodes.partition_state(*state) for state in some])
        read: dict[str, dict[int, StoreNode | None]] = {}
        for (name, number), node in zip(states, nodes, strict=True):
            read.setdefault(name, {})[number] = node
        missing = [name for name, by_number in read.items() if None in by_number.values()]
        changed = []
        for name, node in await self._read(znodes.TOPICS, missing) if missing else ():
            topic = self._without_states(name, node)
            if topic is None or topic.id != _id_of(topics[name]) or znodes.topic(name) in self.damaged:
                topics[name] = topic
                changed.append(name)
                del read[name]
        for name, by_number in read.items():
            topics[name] = await self._with_states(topics[name], by_number)
        if changed:
            await self._read_states(topics, dict.fromkeys(changed))

    def _without_states(self, name: str, node: StoreNode | None) -> TopicImage | None:
        if node is None:
            return None
        topic = self._decoded(znodes.topic(name), None, _topic_without_states, name, node)
        return topic or _with_damaged_states(self._before.topics.get(name))

    async def _with_states(
        self, topic: TopicImage | None, nodes: Mapping[int, StoreNode | None]
    ) -> TopicImage | None:
        if topic is None:
            return None
        partitions = list(topic.partitions)
        gone = []
        for done, (number, node) in enumerate(nodes.items(), 1):
            if done % _STATES_A_TURN == 0:
                await asyncio.sleep(0)
            if number >= len(partitions):
                continue  # of a topic that grew, whose own node is news too
            before = partitions[number]
            if node is None:
                gone.append(number)
                partitions[number] = PartitionState(
                    before.replicas, (), NO_BROKER, before.leader_epoch, partition_epoch=-1
                )
                continue
            partitions[number] = self._decoded(
                znodes.partition_state(topic.name, number),
                self._kept_state(topic, number),
                znodes.decode_partition_state,
                before.replicas,
                node,
                znodes.Reassignment(before.adding, before.removing),
            )
        if gone:
            log.error(
                "the metadata store has no state of %d partitions of topic %s (%s%s): they have no leader "
                "until it is put back; their logs are kept",
                len(gone),
                topic.name,
                ", ".join(map(str, gone[:_NAMED_PARTITIONS])),
                ", ..." if len(gone) > _NAMED_PARTITIONS else "",
            )
        return TopicImage(topic.name, topic.id, tuple(partitions))

    def _kept_state(self, topic: TopicImage, number: int) -> PartitionState:
        """Return the state of a partition for the case that its node is damaged: the last known state."""
        state = topic.partitions[number]
        before = self._before.topics.get(topic.name)
        if before is not None and before.id == topic.id and number < len(before.partitions):
            known = before.partitions[number]
            state = known._replace(replicas=state.replicas, adding=state.adding, removing=state.removing)
        return state._replace(is_damaged=True)

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


def _topic_without_states(name: str, node: StoreNode) -> TopicImage:
    assignment = znodes.decode_topic(node.data)
    states = {each: PartitionState(each, (), NO_BROKER) for each in dict.fromkeys(assignment.replicas)}
    partitions = [states[replicas] for replicas in assignment.replicas]
    for number, (adding, removing) in assignment.reassignments.items():
        partitions[number] = partitions[number]._replace(adding=adding, removing=removing)
    return TopicImage(name, assignment.topic_id, tuple(partitions))


def _with_damaged_states(topic: TopicImage | None) -> TopicImage | None:
    if topic is None:
        return None
    return topic._replace(partitions=tuple(state._replace(is_damaged=True) for state in topic.partitions))


def _id_of(topic: TopicImage | None) -> TopicId | None:
    return None if topic is None else topic.id


def _add_topic(topics: dict[str, set[int] | None], name: str, partition: str | None) -> None:
    if partition is None:
        topics[name] = None
    else:
        numbers = topics.setdefault(name, set())
        if numbers is not None:
            numbers.add(int(partition))
