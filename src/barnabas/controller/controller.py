"""The controller: the only writer of what the cluster agrees on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from barnabas.controller.configs import ConfigChange, ConfigControl, ConfigResource
from barnabas.controller.controller_election import ControllerElection
from barnabas.controller.features import FeatureUpdate, update_features
from barnabas.controller.leader_election import elect
from barnabas.controller.producer_ids import allocate_block
from barnabas.controller.topics import NewPartitions, NewTopic, TopicControl
from barnabas.environment.clock import Clock
from barnabas.errors import KafkaError
from barnabas.metadata import znodes
from barnabas.metadata.configs import ConfigResolver
from barnabas.metadata.image import BrokerImage, TopicImage
from barnabas.metadata.loader import MetadataLoader
from barnabas.metadata.store import MetadataStore, Operation, Set
from barnabas.text import logger_of
from barnabas.types import BrokerId, TopicId

log = logger_of(__name__)


class Controller:
    """One broker's controller, which acts while it is elected (`ControllerElection`).

    Its methods decide one after the other, each on an image that shows all that was decided before, and
    return when this broker's image shows the result.
    """

    def __init__(
        self,
        store: MetadataStore,
        loader: MetadataLoader,
        configs: ConfigResolver,
        broker: BrokerImage,
        clock: Clock,
        random: Random,
    ) -> None:
        self._store = store
        self._loader = loader
        self._broker = broker
        self._clock = clock
        self._election = ControllerElection(store, broker.id, clock)
        self._topics = TopicControl(self._election, loader, configs, broker.id, random)
        self._configs = ConfigControl(self._election, loader, configs)

    @property
    def active(self) -> bool:
        """Whether this broker is the cluster's controller."""
        return self._election.is_won

    async def start(self) -> None:
        """Register the broker, run for controller, and see that every partition has a leader.

        Raises:
            StoreError: the store cannot be used; NodeExistsError: a live broker has this broker's id.
        """
        node = znodes.encode_broker(self._broker, self._clock.now_ms())
        await self._store.create(znodes.broker(self._broker.id), node, ephemeral=True)
        if await self._election.run():
            await self._elect_leaders(restarted=(self._broker.id,))
            await self._topics.forget_deleted()
        await self._loader.settled()

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, TopicImage | KafkaError]:
        """As `TopicControl.create`."""
        return await self._topics.create(topics, validate_only=validate_only)

    async def delete_topics(self, topic_ids: Sequence[TopicId]) -> dict[TopicId, KafkaError]:
        """As `TopicControl.delete`."""
        return await self._topics.delete(topic_ids)

    async def create_partitions(
        self, requests: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> dict[str, KafkaError]:
        """As `TopicControl.create_partitions`."""
        return await self._topics.create_partitions(requests, validate_only=validate_only)

    async def replace_configs(
        self, resources: Mapping[ConfigResource, Mapping[str, str | None]], *, validate_only: bool = False
    ) -> dict[ConfigResource, KafkaError]:
        """As `ConfigControl.replace`."""
        return await self._configs.replace(resources, validate_only=validate_only)

    async def alter_configs(
        self, resources: Mapping[ConfigResource, Sequence[ConfigChange]], *, validate_only: bool = False
    ) -> dict[ConfigResource, KafkaError]:
        """As `ConfigControl.alter`."""
        return await self._configs.alter(resources, validate_only=validate_only)

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> None:
        """As `features.update_features`."""
        await update_features(self._store, self._election, self._loader, updates, validate_only=validate_only)

    async def allocate_producer_ids(self) -> range:
        """As `producer_ids.allocate_block`."""
        return await allocate_block(self._store, self._election, self._broker.id)

    async def _elect_leaders(self, restarted: Sequence[BrokerId]) -> None:
        async with self._election.lock:
            image = await self._loader.settled()
            changes: list[Operation] = []
            for _, topic in sorted(image.topics.items()):
                for number, state in enumerate(topic.partitions):
                    elected = elect(state, image.brokers, restarted)
                    if elected is not None:
                        data = znodes.encode_partition_state(elected, self._election.epoch)
                        path = znodes.partition_state(topic.name, number)
                        changes.append(Set(path, data, state.partition_epoch))
            if changes:
                await self._election.write(changes)
                log.info("elected leaders for %d partitions", len(changes))
