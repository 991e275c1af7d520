"""The end of what a broker leads and coordinates, when it may do so no longer."""

from __future__ import annotations

from typing import Any

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.text import logger_of
from barnabas.broker.controller import Controller
from barnabas.broker.coordinator.coordinator import Coordinator
from barnabas.broker.metadata.store import SessionState
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.replication.partition import Partition
from barnabas.broker.server.to_controller import ToController, allocate_producer_ids
from barnabas.broker.view import BrokerView

log = logger_of(__name__)


class Leadership:
    """Resigns from partitions and their coordinators, in the same turn of the event loop.

    Replica managers and coordinators are added as they open; until then this broker leads nothing.
    """

    def __init__(self, view: BrokerView, controller: Controller) -> None:
        self._view = view
        self._controller = controller
        self._replicas: list[ReplicaManager] = []
        #: by internal topic
        self._coordinators: dict[str, Coordinator[Any]] = {}

    def add_replicas(self, replicas: ReplicaManager) -> None:
        """These replicas resign when the broker has to."""
        self._replicas.append(replicas)

    def add_coordinator(self, coordinator: Coordinator[Any]) -> None:
        """This coordinator resigns when the broker has to, and with the partitions of its topic."""
        self._coordinators[coordinator.topic] = coordinator

    def on_session(self, state: SessionState) -> None:
        """The session with the metadata store has changed."""
        if state is SessionState.LOST:
            self._end("the metadata store has ended the session")

    def epoch_ended(self, epoch: int) -> None:
        """The controller says that a registration of this broker is no longer valid."""
        if epoch == self._view.broker_epoch and not self._controller.registration.is_given_up:
            self._end("the controller says that this broker's registration has ended")
            self._controller.register_anew()

    def partition_ended(self, partition: Partition) -> None:
        """This broker no longer leads a partition, whatever the image says, nor coordinates its keys."""
        topic, number = partition.topic_partition
        coordinator = self._coordinators.get(topic)
        if coordinator is not None:
            coordinator.resign(number)

    async def allocate_producer_ids(self, to_controller: ToController) -> range:
        """A block of producer ids from the controller. Raises KafkaError: the controller grants none now."""
        epoch = self._view.broker_epoch
        try:
            return await allocate_producer_ids(to_controller, self._view.node_id, epoch)
        except KafkaError as error:
            if error.code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
                self.epoch_ended(epoch)
            raise

    def _end(self, why: str) -> None:
        """Another broker may lead already, and answers the clients."""
        for coordinator in self._coordinators.values():
            coordinator.resign_all()
        for replicas in self._replicas:
            log.warning("%s: this broker leads no partitions until it has registered again", why)
            replicas.resign_all()
