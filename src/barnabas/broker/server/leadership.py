"""Ends this broker's leaderships and coordinators when it may no longer lead."""

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
    """Stops this broker's leaderships, and its coordinators in the same turn of the event loop."""

    def __init__(self, view: BrokerView, controller: Controller) -> None:
        self._view = view
        self._controller = controller
        self._replicas: list[ReplicaManager] = []
        #: by internal topic
        self._coordinators: dict[str, Coordinator[Any]] = {}

    def add_replicas(self, replicas: ReplicaManager) -> None:
        """Add a replica manager, whose leaderships end when this broker may no longer lead."""
        self._replicas.append(replicas)

    def add_coordinator(self, coordinator: Coordinator[Any]) -> None:
        """Add a coordinator that must resign when this broker may no longer lead partitions."""
        self._coordinators[coordinator.topic] = coordinator

    def on_session(self, state: SessionState) -> None:
        """End all leaderships if the session with the metadata store is lost."""
        if state is SessionState.LOST:
            self._end("the metadata store has ended the session")

    def epoch_ended(self, epoch: int) -> None:
        """End all leaderships and register again, because the controller rejects broker epoch `epoch`.

        Do nothing if the broker already has another epoch.
        """
        if epoch == self._view.broker_epoch and not self._controller.registration.needs_new_epoch:
            self._end("the controller says that this broker's registration has ended")
            self._controller.register_anew()

    def partition_ended(self, partition: Partition) -> None:
        """Stop the coordinator in a partition that this broker no longer leads."""
        topic, number = partition.topic_partition
        coordinator = self._coordinators.get(topic)
        if coordinator is not None:
            coordinator.resign(number)

    async def allocate_producer_ids(self, to_controller: ToController) -> range:
        """Request a block of producer ids from the controller, and return it.

        Raises:
            KafkaError: the controller gives no block now. If the reason is that the controller rejects this
                broker's epoch, this method first ends all leaderships (`epoch_ended`).
        """
        epoch = self._view.broker_epoch
        try:
            return await allocate_producer_ids(to_controller, self._view.node_id, epoch)
        except KafkaError as error:
            if error.code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
                self.epoch_ended(epoch)
            raise

    def _end(self, why: str) -> None:
        """Stop all coordinators and end all leaderships, because another broker can already be the leader.

        `why` is the reason, for the log.
        """
        for coordinator in self._coordinators.values():
            coordinator.resign_all()
        for replicas in self._replicas:
            log.warning("%s: this broker leads no partitions until it has registered again", why)
            replicas.resign_all()
