"""The controller: the only writer of what the cluster agrees on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from barnabas.controller.configs import ConfigControl
from barnabas.controller.controller_election import ControllerElection
from barnabas.controller.features import FeatureControl
from barnabas.controller.leader_election import elect
from barnabas.controller.producer_ids import ProducerIdControl
from barnabas.controller.registration import Registration
from barnabas.controller.topics import TopicControl
from barnabas.environment.clock import Clock
from barnabas.errors import KafkaError
from barnabas.metadata import znodes
from barnabas.metadata.batches import batches
from barnabas.metadata.configs import ConfigResolver
from barnabas.metadata.image import BrokerImage, ImageDelta
from barnabas.metadata.loader import MetadataLoader
from barnabas.metadata.store import (
    Cancel,
    MetadataStore,
    Operation,
    SessionState,
    Set,
    StoreError,
    StoreUnavailableError,
)
from barnabas.text import logger_of
from barnabas.types import NO_BROKER, BrokerId

log = logger_of(__name__)


class Controller:
    """One broker's controller, which acts while it is elected (`ControllerElection`).

    Its parts decide one after the other, each on an image that shows all that was decided before, and return
    when this broker's image shows the result. While the store is out of reach they raise
    KafkaError(KAFKA_STORAGE_ERROR).

    Args:
        store: what the cluster agrees on.
        loader: shows this broker's image of it.
        configs: the broker's settings.
        broker: what to register.
        clock: the time of the registration.
        random: spreads replicas.
        on_failure: called when another broker has registered by this one's id: this one has to stop.
    """

    def __init__(
        self,
        store: MetadataStore,
        loader: MetadataLoader,
        configs: ConfigResolver,
        broker: BrokerImage,
        clock: Clock,
        random: Random,
        on_failure: Callable[[Exception], None] | None = None,
    ) -> None:
        self._store = store
        self._on_failure = on_failure
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
        #: what the cluster knows of this broker
        self.registration = Registration(store, broker, clock)
        self._joining: asyncio.Task[None] | None = None
        self._must_join = False
        self._cancel_states: Cancel | None = None

    @property
    def active(self) -> bool:
        """Whether this broker is the cluster's controller."""
        return self._election.is_won

    async def start(self) -> None:
        """Register the broker, run for controller, and see that every partition has a leader.

        When the session with the store is followed by another one, all of that is done again; it is also when
        there is no controller any more.

        Raises:
            StoreError: the store cannot be used; NodeExistsError: a live broker has this broker's id.
        """
        await self._join()
        self._cancel_states = self._store.on_state(self._on_state)
        self._loader.subscribe(self._on_image)

    async def stop(self) -> None:
        """Decide nothing more. The end of the session takes the registration away."""
        if self._cancel_states is not None:
            self._cancel_states()
        self._election.resign()
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.gather(self._joining, return_exceptions=True)
        await self.registration.stop()

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._election.resign()
        elif state is SessionState.CONNECTED:
            self._begin_join()

    def _on_image(self, delta: ImageDelta) -> None:
        if delta.after.controller_id == NO_BROKER and self._store.state is SessionState.CONNECTED:
            self._begin_join()

    def _begin_join(self) -> None:
        self._must_join = True
        if self._joining is None or self._joining.done():
            self._joining = asyncio.create_task(self._join_again(), name="controller election")

    async def _join_again(self) -> None:
        try:
            while self._must_join:
                self._must_join = False
                await self._join()
        except (StoreUnavailableError, KafkaError) as error:
            log.warning("broker %d will register again when the store answers: %s", self._broker.id, error)
        except StoreError as error:
            log.error("broker %d cannot register again: %s", self._broker.id, error)
            if self._on_failure is not None:
                self._on_failure(error)

    async def _join(self) -> None:
        restarted = (self._broker.id,) if await self.registration.register() else ()
        if not self._election.is_won and await self._election.run():
            log.info("broker %d is the controller, in epoch %d", self._broker.id, self._election.epoch)
            await self._elect_leaders(restarted)
            await self.topics.forget_deleted()
        await self._loader.settled()

    async def _elect_leaders(self, restarted: Sequence[BrokerId]) -> None:
        async with self._election.deciding():
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
                await self._write_elections(changes)

    async def _write_elections(self, changes: Sequence[Operation]) -> None:
        errors = await self._election.write_each(dict(enumerate(batches(changes))))
        for error in errors.values():
            raise error
        log.info("elected leaders for %d partitions", len(changes))
