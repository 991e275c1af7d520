"""Removes brokers that will not come back (UnregisterBroker, KIP-631)."""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.text import logger_of
from barnabas.base.types import BrokerId
from barnabas.broker.controller.writes import ControllerWrites
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.store import Set

log = logger_of(__name__)


class UnregistrationControl:
    """The part of the controller that removes brokers from the metadata."""

    def __init__(self, writes: ControllerWrites) -> None:
        self._writes = writes

    async def unregister(self, broker: BrokerId) -> None:
        """Remove an absent broker from the metadata: it gets no new replicas until it has registered again.

        Its present replicas stay assigned to it. If it comes back, it counts as stopped uncleanly, because
        the cluster no longer knows its last epoch.

        Raises:
            KafkaError: BROKER_ID_NOT_REGISTERED, the cluster does not know the broker; INVALID_REQUEST, the
                broker is alive; NOT_CONTROLLER or KAFKA_STORAGE_ERROR, as in `ControllerWrites.write`.
        """
        async with self._writes.answering() as image:
            if broker in image.brokers:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"broker {broker} is alive: stop it first")
            left = {known: each for known, each in image.admitted.items() if known != broker}
            if len(left) == len(image.admitted):
                raise KafkaError(
                    ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker} is not currently registered"
                )
            await self._writes.write([Set(znodes.BROKER_EPOCHS, znodes.encode_broker_epochs(left))])
        log.info("broker %d is unregistered; it registers again if it starts again", broker)
