"""The cluster as one broker knows it at one moment.

A metadata image is immutable, and each change makes a new one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

from immutables import Map

from barnabas.base.types import NO_BROKER, BrokerId, LeaderEpoch, TopicId, TopicPartition
from barnabas.broker.logins.delegation_tokens import DelegationToken
from barnabas.broker.metadata.features import FinalizedFeatures
from barnabas.broker.quotas import QuotaEntity
from barnabas.kafka.security.acls import Acls

#: means every broker in `ClusterImage.broker_configs`
ALL_BROKERS = "<default>"


_NOTHING: Mapping[Any, Any] = MappingProxyType({})
_EMPTY: Mapping[Any, Any] = Map()
_NO_ACLS = Acls()


class BrokerEndpoint(NamedTuple):
    """The address of a broker's listener for clients."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


class BrokerState(Enum):
    """The state of a registered broker."""

    STARTING = "starting"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting down"


class Admission(NamedTuple):
    """A registration that the controller has admitted: all partitions have the states that follow from it."""

    #: the broker epoch of the registration
    epoch: int
    #: `BrokerImage.incarnation` of the registration
    incarnation: str = ""


class BrokerImage(NamedTuple):
    """A live broker and its registration. The broker epoch grows with every registration (KIP-380)."""

    id: BrokerId
    endpoints: tuple[BrokerEndpoint, ...]
    rack: str | None = None
    epoch: int = -1
    state: BrokerState = BrokerState.RUNNING
    #: the lowest and the highest level of each feature that the broker supports
    features: Mapping[str, tuple[int, int]] = MappingProxyType({})
    #: ids of the log directories that the broker cannot use
    failed_log_dirs: tuple[str, ...] = ()
    #: the broker's previous epoch if that ended cleanly (KIP-966), else -1
    previous_epoch: int = -1
    #: random id of the broker's process; empty from a broker of 0.2.0
    incarnation: str = ""
    #: whether the broker reaches the store, but neither the controller nor its followers
    is_isolated: bool = False
    #: the broker's replicas that lack acknowledged records, until they have copied these again
    incomplete_replicas: frozenset[tuple[TopicId, int]] = frozenset()

    def endpoint(self, listener: str) -> BrokerEndpoint | None:
        """Return this broker's endpoint of the listener with that name; None if it has none."""
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)


class PartitionState(NamedTuple):
    """The replicas, the leader and the ISR of a partition.

    `leader` is -1 if there is none. `leader_epoch` grows with each new leader. `partition_epoch` grows with
    each change of this state, and a change must name the previous `partition_epoch` (KIP-497). If the store
    has no state of the partition, `partition_epoch` is -1.
    """

    #: brokers with a replica, preferred leader first; in a reassignment the new ones, then those to remove
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: LeaderEpoch = 0
    partition_epoch: int = 0
    #: replicas out of the ISR that certainly have all records below the high watermark (KIP-966)
    elr: tuple[BrokerId, ...] = ()
    #: the last members of ISR and ELR when both became empty: the candidates of an unclean election
    last_known_elr: tuple[BrokerId, ...] = ()
    #: whether the leader may lack committed records, and has not reported its recovery yet (KIP-704)
    recovering: bool = False
    #: replicas that a reassignment adds, and those that it removes at its end (KIP-455)
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    #: whether the data of its node or of its topic's node is damaged: this is the last known state, and the
    #: controller keeps it
    is_damaged: bool = False

    @property
    def is_known(self) -> bool:
        """Whether the store has this state, so that the controller may replace it."""
        return not self.is_missing and not self.is_damaged

    @property
    def is_missing(self) -> bool:
        """Whether the store has no state of the partition, because its node was deleted.

        This is not a reason to delete its log.
        """
        return self.partition_epoch < 0

    def has_left(self, broker: BrokerId) -> bool:
        """Whether a broker must delete its log of the partition, because it is no longer a replica.

        The result is False for the leader and for brokers that can be elected (ISR, ELR, last known ELR). A
        user may have removed such a broker from the replicas: the result is still False.
        """
        needed = (*self.replicas, *self.isr, *self.elr, *self.last_known_elr, self.leader)
        return broker not in needed


class TopicImage(NamedTuple):
    """A topic, with its partitions in the order of their numbers."""

    name: str
    id: TopicId
    partitions: tuple[PartitionState, ...]


class ClusterImage(NamedTuple):
    """The brokers, topics, settings, users and ACLs of a cluster. Never change an image or its mappings.

    The loader's images use persistent maps for large tables, so that an image shares unchanged parts with the
    next one. The order of iteration over these maps differs between processes. So sort everything that is
    shown or stored.
    """

    cluster_id: str = ""
    controller_id: BrokerId = NO_BROKER
    #: the highest controller epoch that this broker has seen, and the version of the node with it
    controller_epoch: int = 0
    controller_epoch_version: int = -1
    #: the last producer id that a controller has handed out, as far as this broker has seen; -1 for none
    last_producer_id: int = -1
    brokers: Mapping[BrokerId, BrokerImage] = _NOTHING
    #: the last admission of each broker; a broker with another epoch is out of sync everywhere
    admitted: Mapping[BrokerId, Admission] = _NOTHING
    topics: Mapping[str, TopicImage] = _EMPTY
    topic_names: Mapping[TopicId, str] = _EMPTY
    #: the dynamic settings of topics, as text, by topic
    topic_configs: Mapping[str, Mapping[str, str]] = _EMPTY
    #: the dynamic settings of brokers, as text, by the broker's id or `ALL_BROKERS`
    broker_configs: Mapping[str, Mapping[str, str]] = _EMPTY
    #: the dynamic settings of groups, as text, by the group's id
    group_configs: Mapping[str, Mapping[str, str]] = _EMPTY
    #: the client-metrics resources, as text, by name
    client_metrics: Mapping[str, Mapping[str, str]] = _EMPTY
    #: credentials (as text, by mechanism) and quotas of users, by user
    user_configs: Mapping[str, Mapping[str, str]] = _EMPTY
    #: the quotas of users, client ids and addresses, as text; some entities have none
    client_quotas: Mapping[QuotaEntity, Mapping[str, str]] = _EMPTY
    #: access control lists
    acls: Acls = _NO_ACLS
    #: delegation tokens by their ids; those that have expired are here until they are deleted
    delegation_tokens: Mapping[str, DelegationToken] = _EMPTY

    features: FinalizedFeatures = FinalizedFeatures()
    #: deletion notes: deleted topics, and the brokers that may still have their folders; no brokers if the
    #: note was removed before this image has shown that the topic is gone
    deleted_topics: Mapping[TopicId, frozenset[BrokerId]] = _EMPTY

    def is_admitted(self, broker: BrokerId) -> bool:
        """Whether a broker is live, and the controller has acknowledged the broker's present epoch.

        Before that, the broker is out of sync in all of its partitions.
        """
        registered, admission = self.brokers.get(broker), self.admitted.get(broker)
        return registered is not None and admission is not None and admission.epoch == registered.epoch

    def topic_by_id(self, topic_id: TopicId) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, partition: TopicPartition) -> PartitionState | None:
        topic = self.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        return topic.partitions[partition.partition]

    def is_deleted_from(self, broker: BrokerId, partition: TopicPartition, topic_id: TopicId) -> bool:
        """Whether a broker must delete its log of a partition.

        The result is True if the topic is in `deleted_topics`, or if the broker is no longer a replica of the
        partition (`PartitionState.has_left`). If the topic is only missing from this image, the result is
        False: the broker keeps the log.
        """
        if topic_id in self.deleted_topics:
            return True
        state = self.partition(partition)
        return state is not None and self.topics[partition.topic].id == topic_id and state.has_left(broker)

    def hosted_by(self, broker: BrokerId) -> dict[TopicPartition, TopicId]:
        """Return the partitions with a replica on `broker`, each with the id of its topic."""
        return {
            TopicPartition(topic.name, index): topic.id
            for topic in self.topics.values()
            for index, state in enumerate(topic.partitions)
            if broker in state.replicas
        }

    def topic_config(self, topic: str) -> Mapping[str, str]:
        """Return the topic's own settings by name, as text, without defaults.

        The result is empty if the topic has none, or if there is no such topic.
        """
        return self.topic_configs.get(topic, _NOTHING)

    def broker_config(self, name: str) -> Mapping[str, str]:
        """Return the dynamic settings that the store has for a broker, by name, as text; empty if none.

        `name` is the broker's id as text, or `ALL_BROKERS` for the settings of all brokers.
        """
        return self.broker_configs.get(name, _NOTHING)

    def group_config(self, group_id: str) -> Mapping[str, str]:
        """Return the group's own settings by name, as text, without defaults; empty if it has none."""
        return self.group_configs.get(group_id, _NOTHING)


class ImageDelta(NamedTuple):
    """The changes from one metadata image to the next.

    The sets of topics' names also contain the names of new and deleted topics. A topic that was deleted and
    created again has different ids in `before` and `after`.
    """

    before: ClusterImage
    after: ClusterImage
    #: topics whose partitions changed
    topics: frozenset[str] = frozenset()
    #: topics in which only these partitions changed; in the other `topics`, any partition may have changed
    partitions: Mapping[str, Collection[int]] = _NOTHING
    #: topics whose own settings changed
    topic_configs: frozenset[str] = frozenset()
    #: whether a broker came, went, moved or was admitted
    brokers: bool = False
    #: whether settings of brokers changed; some are the defaults of topics' settings
    broker_configs: bool = False
    #: the entities whose quotas changed
    client_quotas: frozenset[QuotaEntity] = frozenset()
    #: topics whose deletion notes were removed since `before`
    deleted: frozenset[TopicId] = frozenset()

    def changed_partitions(self) -> Iterator[TopicPartition]:
        """Yield the partitions that may have changed, also new and deleted ones."""
        for name in self.topics:
            numbers = self.partitions.get(name)
            if numbers is None:
                images = (self.before.topics.get(name), self.after.topics.get(name))
                counts = (len(topic.partitions) for topic in images if topic is not None)
                numbers = range(max(counts, default=0))
            for number in numbers:
                yield TopicPartition(name, number)

    def is_deleted(self, topic_id: TopicId) -> bool:
        """Whether `ClusterImage.deleted_topics` has, or for a time had, the topic.

        The function considers both images, and the deletion notes that were removed between them.
        """
        return (
            topic_id in self.after.deleted_topics
            or topic_id in self.deleted
            or topic_id in self.before.deleted_topics
        )

    def narrowed(self) -> ImageDelta:
        """Return the same change, without the items that were read again and are equal in both images."""
        before, after = self.before, self.after
        topics = frozenset(name for name in self.topics if before.topics.get(name) != after.topics.get(name))
        return self._replace(
            topics=topics,
            partitions={name: numbers for name, numbers in self.partitions.items() if name in topics},
            topic_configs=frozenset(
                name for name in self.topic_configs if before.topic_config(name) != after.topic_config(name)
            ),
            brokers=self.brokers and (before.brokers != after.brokers or before.admitted != after.admitted),
            broker_configs=self.broker_configs and before.broker_configs != after.broker_configs,
            client_quotas=frozenset(
                entity
                for entity in self.client_quotas
                if before.client_quotas.get(entity) != after.client_quotas.get(entity)
            ),
        )
