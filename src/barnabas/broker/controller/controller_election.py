"""Controller election: one broker is the controller, and the store rejects writes of all others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from barnabas.base.environment.clock import Clock
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import BrokerId, TopicPartition
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.batches import batches
from barnabas.broker.metadata.image import ClusterImage, PartitionState
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
    StoreNode,
    StoreUnavailableError,
    TransactionTooLargeError,
    UnknownOutcomeError,
)

K = TypeVar("K")

#: transactions written at once
_MOST_ON_THEIR_WAY = 4


class ControllerElection:
    """Elects the controller, and makes all of its writes to the store, fenced by the controller epoch.

    A broker is elected when it creates the ephemeral node ``/controller`` and raises ``/controller_epoch`` in
    one transaction. Each write checks that ``/controller_epoch`` has not changed. So a broker that does not
    know yet that it was replaced cannot change anything (as in Apache Kafka since KAFKA-6082).

    Args:
        loader: loads this broker's image. A new controller epoch is higher than the epoch in the image.
    """

    def __init__(
        self, store: MetadataStore, broker_id: BrokerId, clock: Clock, loader: MetadataLoader | None = None
    ) -> None:
        self._loader = loader
        self._store = store
        self._broker_id = broker_id
        self._clock = clock
        self._epoch_version: int | None = None
        self._lock = asyncio.Lock()
        #: whether the store has confirmed, since `answering` began, that this broker is still the controller
        self._is_confirmed = False
        #: the controller epoch of the last election that this broker has won
        self.epoch = 0

    @property
    def is_won(self) -> bool:
        return self._epoch_version is not None

    def require_won(self) -> None:
        """Raise KafkaError NOT_CONTROLLER unless this broker is the controller."""
        if not self.is_won:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)

    @asynccontextmanager
    async def deciding(self) -> AsyncIterator[ClusterImage]:
        """Enter a context for one decision, with an image that shows all earlier decisions.

        Only one such context is entered at a time.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the store cannot be reached any more.
        """
        async with self._lock:
            try:
                yield await self.settled()
            except StoreUnavailableError as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[ClusterImage]:
        """Enter a context like `deciding`, for a response that must be true even without a write.

        A broker that does not know yet that it was replaced has an old image. In this image, a deleted topic
        still exists, for example. So a decision without a write is valid only if this broker is still the
        controller. Afterwards this broker's image shows the decision.

        Raises:
            KafkaError: the errors of `deciding`; NOT_CONTROLLER, this broker is not the controller, or no
                longer.
        """
        async with self.deciding() as image:
            self._is_confirmed = self._store.session_timeout == 0  # no broker could have replaced it
            try:
                yield image
            except KafkaError:
                await self._confirm()
                raise
            await self._confirm()
            await self.settled()

    async def settled(self) -> ClusterImage:
        """Return this broker's image when it contains all writes of this broker."""
        assert self._loader is not None
        return await self._loader.settled()

    async def _confirm(self) -> None:
        if not self._is_confirmed:
            await self.write(())

    def resign(self) -> None:
        """Stop all decisions of this broker until it is elected again. Do not change the store."""
        self._epoch_version = None

    async def give_up(self) -> None:
        """Resign, and delete this session's node ``/controller``, so that another broker can be elected.

        Raises:
            StoreError: the node cannot be deleted.
        """
        self.resign()
        node = await self._store.exists(znodes.CONTROLLER)
        if node is not None and node.owner == self._store.session_id:
            await self._store.delete(znodes.CONTROLLER)

    async def run(self) -> bool:
        """Try to become the controller. Return True if this broker was elected now.

        Return False if another broker is the controller, or if this one still is.

        This session may already have a node ``/controller``, from an election whose response was lost or from
        before `resign`. Then the broker raises the epoch again. After that, each pending write of an earlier
        epoch has failed or is done. If a user has deleted this controller's node, the controller resigns and
        runs again.

        Raises:
            KafkaError: NOT_CONTROLLER, the node of the epoch is missing (`lost_nodes`).
            StoreError: the store cannot be reached.
        """
        async with self._lock:  # what was decided as the controller before is written before, or never
            return await self._run()

    async def _run(self) -> bool:
        stored, controller = await self._store.read([znodes.CONTROLLER_EPOCH, znodes.CONTROLLER])
        if (
            stored is not None
            and stored.version == self._epoch_version
            and controller is not None
            and controller.owner == self._store.session_id
        ):
            return False
        self.resign()
        if stored is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"there is no node {znodes.CONTROLLER_EPOCH}")
        seen = 0 if self._loader is None else self._loader.image.controller_epoch
        epoch = max(znodes.decode_controller_epoch(stored.data), seen) + 1
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
        self.epoch, self._epoch_version = epoch, version
        return True

    async def write(self, operations: Sequence[Operation]) -> list[int]:
        """Apply all operations or none, if this broker is still the controller.

        Return the version of each Create and Set, -1 for other operations.

        Raises:
            KafkaError: NOT_CONTROLLER, this broker is not the controller, or no longer; POLICY_VIOLATION, the
                operations are too large for one transaction; KAFKA_STORAGE_ERROR, the store cannot be
                written. If the outcome of the write is unknown, this broker has also resigned.
            StoreError: an operation is not allowed.
        """
        self._is_confirmed = True
        if self._epoch_version is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        epoch_check = Check(znodes.CONTROLLER_EPOCH, self._epoch_version)
        try:
            return (await self._store.multi([epoch_check, *operations]))[1:]
        except (BadVersionError, NoNodeError):
            stored = await self._store.exists(znodes.CONTROLLER_EPOCH)
            if stored is not None and stored.version == self._epoch_version:
                raise
            self._epoch_version = None
            raise KafkaError(ErrorCode.NOT_CONTROLLER) from None
        except TransactionTooLargeError as error:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, str(error)) from error
        except UnknownOutcomeError as error:
            self.resign()  # and begin anew from what the store holds then (kazoo 757)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        except StoreUnavailableError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    async def write_batches(self, operations: Sequence[Operation]) -> list[int]:
        """Write operations that need no common transaction. Return the new version of each node.

        The order of the operations stays the same. Several transactions are under way at once. The event loop
        can run other tasks after each transaction.

        Raises:
            KafkaError, StoreError: the first error of `write`, after all transactions have ended. Some of
                them may have been written.
        """
        versions: list[int] = []
        on_their_way: deque[asyncio.Future[list[int]]] = deque()
        try:
            for batch in batches(operations):
                if len(on_their_way) == _MOST_ON_THEIR_WAY:
                    versions += await on_their_way.popleft()
                on_their_way.append(asyncio.ensure_future(self.write(batch)))
                await asyncio.sleep(0)
            while on_their_way:
                versions += await on_their_way.popleft()
        finally:
            await asyncio.gather(*on_their_way, return_exceptions=True)
        return versions

    def state_change(self, partition: TopicPartition, before: PartitionState, after: PartitionState) -> Set:
        """Return the operation that stores `after`. It fails if the stored state is no longer `before`."""
        data = znodes.encode_partition_state(after, self.epoch)
        return Set(znodes.partition_state(*partition), data, before.partition_epoch)

    async def read(self, paths: Sequence[str]) -> list[StoreNode | None]:
        """Return many nodes of the store, in the order of `paths`; None for each node that does not exist."""
        return await self._store.read(paths)

    async def write_each(self, transactions: Mapping[K, Sequence[Operation]]) -> dict[K, KafkaError]:
        """Write each transaction separately. Return the errors of the transactions that have failed, by key.

        Raises:
            StoreError: an operation is not allowed.
        """
        writes = (self.write(operations) for operations in transactions.values())
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        errors: dict[K, KafkaError] = {}
        for key, outcome in zip(transactions, outcomes, strict=True):
            if isinstance(outcome, KafkaError):
                errors[key] = outcome
            elif isinstance(outcome, BaseException):
                raise outcome
        return errors
