"""Controller election: one broker is the controller, and the metadata store rejects writes of all others."""

from __future__ import annotations

from barnabas.base.environment.clock import Clock
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import BrokerId
from barnabas.broker.controller.writes import ControllerWrites
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.loader import MetadataLoader
from barnabas.broker.metadata.store import (
    BadVersionError,
    Check,
    Create,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Operation,
    Set,
)


class ControllerElection:
    """Elects the controller.

    A broker is elected when it creates the ephemeral node ``/controller`` and raises ``/controller_epoch`` in
    one transaction. `writes` then checks this epoch.

    Args:
        store: metadata store of the cluster.
        broker_id: id of this broker.
        clock: gives the time for the node ``/controller``.
        writes: writes to the metadata store while this broker is the controller.
        loader: loads this broker's image (copy) of the metadata. A new controller epoch is higher than the
            epoch in the image.
    """

    def __init__(
        self,
        store: MetadataStore,
        broker_id: BrokerId,
        clock: Clock,
        writes: ControllerWrites,
        loader: MetadataLoader | None = None,
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._clock = clock
        self._writes = writes
        self._loader = loader

    async def resign(self) -> None:
        """Resign, and delete this session's node ``/controller``, so that another broker can be elected.

        Raises:
            StoreError: the node cannot be deleted.
        """
        self._writes.resign()
        async with self._writes.lock:
            self._writes.resign()  # an election may have ended meanwhile
            node = await self._store.exists(znodes.CONTROLLER)
            if node is not None and node.owner == self._store.session_id:
                await self._store.delete(znodes.CONTROLLER)

    async def run(self) -> bool:
        """Try to become the controller. Return True if this call has elected this broker.

        Return False if another broker is the controller, or if this broker was the controller before the
        call.

        This broker may have created the node ``/controller`` earlier in its present session, and then
        resigned, or lost the response. In this case the broker keeps the node, and only stores a higher
        controller epoch. After an election, each pending write of an earlier epoch has failed or is done. If
        a user has deleted this controller's node, the controller resigns and takes part in the election
        again.

        Raises:
            KafkaError: NOT_CONTROLLER, the node of the epoch is missing (`lost_nodes`).
            DamagedNodeError: the epoch in the metadata store cannot be decoded.
            StoreError: the metadata store cannot be reached.
        """
        async with self._writes.lock:  # what was decided as the controller before is written before, or never
            return await self._run()

    async def _run(self) -> bool:
        stored, controller = await self._store.read([znodes.CONTROLLER_EPOCH, znodes.CONTROLLER])
        if (
            stored is not None
            and stored.version == self._writes.epoch_version
            and controller is not None
            and controller.owner == self._store.session_id
        ):
            return False
        self._writes.resign()
        if stored is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"there is no node {znodes.CONTROLLER_EPOCH}")
        seen = 0 if self._loader is None else self._loader.image.controller_epoch
        epoch = (
            max(znodes.decoded(znodes.CONTROLLER_EPOCH, znodes.decode_controller_epoch, stored.data), seen)
            + 1
        )
        if controller is None:
            node_data = znodes.encode_controller(self._broker_id, self._clock.now_ms())
            first: Operation = Create(znodes.CONTROLLER, node_data, ephemeral=True)
        elif controller.owner == self._store.session_id:
            first = Check(znodes.CONTROLLER)
        else:
            return False
        raised = Set(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch), stored.version)
        try:
            _, version = await self._store.multi([first, raised])
        except (NodeExistsError, NoNodeError, BadVersionError):
            return False
        self._writes.begin(epoch, version)
        return True
