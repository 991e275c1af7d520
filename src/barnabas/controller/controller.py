"""The controller: the only writer of what the cluster agrees on."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from barnabas.controller.configs import ConfigControl
from barnabas.controller.controller_election import ControllerElection
from barnabas.controller.features import FeatureControl
from barnabas.controller.leader_election import elect
from barnabas.controller.producer_ids import ProducerIdControl
from barnabas.controller.topics import TopicControl
from barnabas.environment.clock import Clock
from barnabas.metadata import znodes
from barnabas.metadata.configs import ConfigResolver
from barnabas.metadata.image import BrokerImage
from barnabas.metadata.loader import MetadataLoader
from barnabas.metadata.store import MetadataStore, Operation, Set
from barnabas.text import logger_of
from barnabas.types import BrokerId

log = logger_of(__name__)


class Controller:
    """One broker's controller, which acts while it is elected (`ControllerElection`).

    Its parts decide one after the other, each on an image that shows all that was decided before, and return
    when this broker's image shows the result.
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
        #: which topics there are
        self.topics = TopicControl(self._election, loader, configs, broker.id, random)
        #: what is set for topics, brokers and groups
        self.configs = ConfigControl(self._election, loader, configs)
        #: which level of each feature the cluster uses
        self.features = FeatureControl(store, self._election, loader)
        #: blocks of producer ids
        self.producer_ids = ProducerIdControl(store, self._election, broker.id)

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
            await self.topics.forget_deleted()
        await self._loader.settled()

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
