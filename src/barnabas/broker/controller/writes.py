"""The controller's writes to the metadata store, and the decisions that lead to them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.batches import batches
from barnabas.broker.metadata.image import ClusterImage, PartitionState
from barnabas.broker.metadata.loader import MetadataLoader
from barnabas.broker.metadata.store import (
    BadVersionError,
    Check,
    MetadataStore,
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
_MAX_ON_THEIR_WAY = 4


class ControllerWrites:
    """All writes of the controller to the metadata store, fenced by the controller epoch.

    Each write checks that ``/controller_epoch`` has not changed since this broker's election. So a broker
    that does not know yet that it was replaced cannot change anything (as in Apache Kafka since KAFKA-6082).

    Args:
        store: metadata store of the cluster.
        loader: loads this broker's image (copy) of the metadata. None if the caller only uses the methods
            that write or read.
        on_resigned: called, without arguments, when `write` has ended this broker's time as controller. This
            broker may still own the node ``/controller``. So it must take part in the next election.
    """

    def __init__(
        self,
        store: MetadataStore,
        loader: MetadataLoader | None = None,
        on_resigned: Callable[[], None] | None = None,
    ) -> None:
        self._store = store
        self._loader = loader
        self._on_resigned = on_resigned
        #: the version of the node ``/controller_epoch`` since this broker's election; None without one
        self.epoch_version: int | None = None
        #: whether the store has confirmed, since `answering` began, that this broker is still the controller
        self._is_confirmed = False
        #: held during a decision, and during an election
        self.lock = asyncio.Lock()
        #: the controller epoch of the last election that this broker has won
        self.epoch = 0

    @property
    def is_controller(self) -> bool:
        return self.epoch_version is not None

    def require_controller(self) -> None:
        """Raise KafkaError NOT_CONTROLLER unless this broker is the controller."""
        if not self.is_controller:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)

    def begin(self, epoch: int, version: int) -> None:
        """Allow writes, because this broker was elected with `epoch`.

        `version` is the version that the node ``/controller_epoch`` has since then.
        """
        self.epoch, self.epoch_version = epoch, version

    def resign(self) -> None:
        """Stop all decisions of this broker until it is elected again. Do not change the metadata store."""
        self.epoch_version = None

    def _lose(self, version: int) -> None:
        """Resign after a write with this version of ``/controller_epoch``, if no election has followed."""
        if self.epoch_version == version:
            self.resign()
            if self._on_resigned is not None:
                self._on_resigned()

    @asynccontextmanager
    async def deciding(self) -> AsyncIterator[ClusterImage]:
        """Return a context for one decision, with a metadata image that shows all earlier decisions.

        Only one task at a time can be in such a context. To enter it, a task waits for the others, and until
        the image is current. This method does not check whether this broker is the controller.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the metadata store cannot be reached any more. The context raises
                this error at its beginning, and in place of a StoreUnavailableError of the caller's code.
        """
        async with self.lock:
            try:
                yield await self.settled()
            except StoreUnavailableError as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[ClusterImage]:
        """Return a context like `deciding`, for a response that must be true even without a write.

        When the context ends, also by a KafkaError, check that this broker is still the controller.
        Otherwise a former controller could answer from an old image of the metadata, in which a deleted topic
        still exists. The check is skipped if a write in the context has already made it, or the store has no
        session timeout.

        If the context succeeds, also wait until the image has all writes of this broker. A KafkaError from
        the context is raised again after the check, unless the check fails.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the metadata store cannot be reached any more; NOT_CONTROLLER,
                this broker is not the controller, or no longer.
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
        """Wait until this broker's image of the metadata contains all writes of this broker, and return it.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the store cannot be read.
        """
        assert self._loader is not None
        try:
            return await self._loader.settled()
        except StoreUnavailableError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    async def _confirm(self) -> None:
        if not self._is_confirmed:
            await self.write(())

    async def write(self, operations: Sequence[Operation]) -> list[int]:
        """Apply all operations or none, if this broker is still the controller.

        Return the version of each Create and Set, -1 for other operations. Without operations, only find out
        whether this broker is still the controller.

        Raises:
            KafkaError: NOT_CONTROLLER, this broker is not the controller, or another one has replaced it;
                POLICY_VIOLATION, the operations are too large for one transaction; KAFKA_STORAGE_ERROR, the
                metadata store cannot be written. If it is unknown whether the operations were applied, the
                error is KAFKA_STORAGE_ERROR, too, and this broker has resigned as controller.
            StoreError: an operation cannot be executed, for example because its node does not exist.
        """
        self._is_confirmed = True
        version = self.epoch_version
        if version is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        epoch_check = Check(znodes.CONTROLLER_EPOCH, version)
        try:
            return (await self._store.multi([epoch_check, *operations]))[1:]
        except (BadVersionError, NoNodeError):
            stored = await self._store.exists(znodes.CONTROLLER_EPOCH)
            if stored is not None and stored.version == version:
                raise
            self._lose(version)
            raise KafkaError(ErrorCode.NOT_CONTROLLER) from None
        except TransactionTooLargeError as error:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, str(error)) from error
        except UnknownOutcomeError as error:
            self._lose(version)  # and begin anew from what the store holds then (kazoo 757)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        except StoreUnavailableError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    async def write_batches(self, operations: Sequence[Operation]) -> list[int]:
        """Write operations that need no common transaction.

        Return the version of each Create and Set, -1 for other operations.

        The metadata store executes the operations in their order. The method sends several transactions
        before it waits for the first one. The event loop can run other tasks after each transaction.

        Raises:
            KafkaError, StoreError: the first error of `write`, after all transactions have ended. Some of
                them may have been written.
        """
        versions: list[int] = []
        on_their_way: deque[asyncio.Future[list[int]]] = deque()
        try:
            for batch in batches(operations):
                if len(on_their_way) == _MAX_ON_THEIR_WAY:
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
        """Return many nodes of the metadata store, in the order of `paths`; None for each missing node."""
        return await self._store.read(paths)

    async def write_each(self, transactions: Mapping[K, Sequence[Operation]]) -> dict[K, KafkaError]:
        """Write each transaction separately. Return the errors of the transactions that have failed, by key.

        Raises:
            StoreError: an operation cannot be executed, for example because its node does not exist.
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
