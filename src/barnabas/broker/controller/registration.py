"""A broker's registration: an ephemeral node of the metadata store, which shows that the broker is alive.

The node also has the broker's addresses, state and other data (`BrokerImage`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.tasks import start_task, stop_tasks
from barnabas.base.types import BrokerId
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.image import BrokerImage, ClusterImage
from barnabas.broker.metadata.loader import MetadataLoader
from barnabas.broker.metadata.reconnection import claim
from barnabas.broker.metadata.store import BadVersionError, MetadataStore, NoNodeError, StoreUnavailableError
from barnabas.broker.view import MutableView

#: how long a starting broker waits for the session of its last run to end, as a multiple of the session
#: timeout. It is more than one, because the store ends sessions with some delay
_SESSIONS_WAITED_OUT = 2.0


async def check_registered(loader: MetadataLoader, broker: BrokerId, epoch: int) -> ClusterImage:
    """Return the metadata image if the broker is registered in this epoch.

    If the present image lacks this registration, first read the latest registrations from the metadata store.
    A broker gives up all its leaderships when it gets BROKER_ID_NOT_REGISTERED or STALE_BROKER_EPOCH, so an
    old image must not cause such an error.

    Raises:
        KafkaError: BROKER_ID_NOT_REGISTERED, no such broker is registered; STALE_BROKER_EPOCH, the broker is
            registered in another epoch.
        StoreError: the store cannot be read.
    """
    image = loader.image
    registered = image.brokers.get(broker)
    if registered is None or registered.epoch != epoch:
        image = await loader.synced()
        registered = image.brokers.get(broker)
    if registered is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED)
    if registered.epoch != epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
    return image


class Registration:
    """Creates a broker's registration node, creates it again after a lost session, and updates it.

    The number of the transaction that created the node is the broker epoch (KIP-380).

    Args:
        store: metadata store of the cluster.
        broker: the broker to register.
        view: the broker's view, with its clock. Each new registration sets the broker epoch in the view.
        on_unwritten: called, without arguments, when `update` could not write a change. Call `register` then.
    """

    def __init__(
        self,
        store: MetadataStore,
        broker: BrokerImage,
        view: MutableView,
        on_unwritten: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._broker = broker
        self._view = view
        self._on_unwritten = on_unwritten
        self._registered_ms = view.clock.now_ms()
        self._clean_epoch = broker.previous_epoch
        #: the session that has the node
        self._session_id = 0
        #: whether the epoch counts no more: the next registration has another one
        self.needs_new_epoch = False
        self._announcing: set[asyncio.Task[None]] = set()

    @property
    def epoch(self) -> int:
        """The broker epoch; -1 before the registration."""
        return self._broker.epoch

    @property
    def clean_epoch(self) -> int:
        """The last broker epoch that the controller has admitted (KIP-966).

        It is -1 if the broker may have lost data since then, in an unclean stop. A clean stop saves the epoch
        on disk for the next start. A new registration without a restart does not change it.
        """
        return self._clean_epoch

    def admitted(self, epoch: int) -> None:
        """Set `clean_epoch` to `epoch`, which the controller has admitted. Ignore an earlier epoch."""
        if epoch == self._broker.epoch:
            self._clean_epoch = epoch

    def request_new_epoch(self) -> None:
        """Make the next call of `register` create a new node, which gives the broker a new broker epoch.

        After that, the controller removes this broker from all ISRs, and elects other leaders where it can.
        """
        self.needs_new_epoch = True

    async def register(self) -> bool:
        """Create the registration node, or update the node that this session has created.

        Return True if the broker has a new broker epoch, False if the node and its epoch stay.

        Raises:
            NodeExistsError: a live broker has this broker's id.
            StoreUnavailableError: the metadata store is closed, or has failed for good.
        """
        if self.needs_new_epoch:
            await self._withdraw()
        timeout = _SESSIONS_WAITED_OUT * self._store.session_timeout
        node = await claim(self._store, self._path, self._data, timeout_s=timeout)
        is_new = node.created != self._broker.epoch
        if is_new:
            self._broker = self._broker._replace(epoch=node.created, previous_epoch=self._clean_epoch)
            self._view.broker_epoch = node.created
            self.needs_new_epoch = False
        self._session_id = node.owner
        return is_new

    async def update(self, **changes: Any) -> None:
        """Change fields of the `BrokerImage` in the node.

        If the metadata store cannot write the change or the node does not exist, the next `register` writes
        the change.
        """
        self._broker = self._broker._replace(**changes)
        try:
            node = await self._store.exists(self._path)
            if node is not None and node.created == self._broker.epoch:
                await self._store.set(self._path, self._data(), node.version)
        except (StoreUnavailableError, NoNodeError, BadVersionError):
            self._on_unwritten()

    def announce(self, **changes: Any) -> None:
        """Start an `update` without waiting for it."""
        task = start_task(self.update(**changes), "broker registration")
        self._announcing.add(task)
        task.add_done_callback(self._announcing.discard)

    async def stop(self) -> None:
        """Cancel the updates that `announce` started."""
        await stop_tasks(*self._announcing)

    async def _withdraw(self) -> None:
        """After `request_new_epoch`, delete the old registration node, if this session still owns it."""
        node = await self._store.exists(self._path)
        if node is not None and node.owner == self._store.session_id and node.created == self._broker.epoch:
            with contextlib.suppress(NoNodeError):
                await self._store.delete(self._path)

    @property
    def _path(self) -> str:
        return znodes.broker(self._broker.id)

    def _data(self) -> bytes:
        broker = self._broker
        is_another = self.needs_new_epoch or self._store.session_id != self._session_id
        if is_another:  # what it follows is known now
            broker = broker._replace(previous_epoch=self._clean_epoch)
        return znodes.encode_broker(broker, self._registered_ms)
