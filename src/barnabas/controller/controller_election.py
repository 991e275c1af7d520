"""Controller election: one broker is the controller, and the store refuses the writes of any other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TypeVar

from barnabas.environment.clock import Clock
from barnabas.errors import ErrorCode, KafkaError
from barnabas.metadata import znodes
from barnabas.metadata.store import (
    BadVersionError,
    Check,
    Create,
    MetadataStore,
    NodeExistsError,
    Operation,
    Set,
    StoreUnavailableError,
)
from barnabas.types import BrokerId

K = TypeVar("K")


class ControllerElection:
    """One broker's part in controller elections, and the writes that its controller epoch fences.

    A broker is elected by creating the ephemeral node ``/controller`` and raising ``/controller_epoch`` in
    one transaction. Each write checks that ``/controller_epoch`` has not changed, so a controller that was
    replaced without noticing changes nothing (as in Apache Kafka since KAFKA-6082).
    """

    def __init__(self, store: MetadataStore, broker_id: BrokerId, clock: Clock) -> None:
        self._store = store
        self._broker_id = broker_id
        self._clock = clock
        self._epoch_version: int | None = None
        #: held by whoever decides something: decisions are made one after the other
        self.lock = asyncio.Lock()
        #: how many controllers there have been, this one included
        self.epoch = 0

    @property
    def is_won(self) -> bool:
        return self._epoch_version is not None

    async def run(self) -> bool:
        """Try to be elected; False when another broker is the controller.

        Raises:
            StoreError: the store cannot be reached.
        """
        node = await self._store.get(znodes.CONTROLLER_EPOCH)
        epoch = znodes.decode_controller_epoch(node.data) + 1
        node_data = znodes.encode_controller(self._broker_id, self._clock.now_ms())
        try:
            _, version = await self._store.multi(
                [
                    Create(znodes.CONTROLLER, node_data, ephemeral=True),
                    Set(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch), node.version),
                ]
            )
        except (NodeExistsError, BadVersionError):
            return False
        self.epoch, self._epoch_version = epoch, version
        return True

    async def write(self, operations: Sequence[Operation]) -> list[int]:
        """All of the operations or none, as `MetadataStore.multi`.

        Raises:
            KafkaError: NOT_CONTROLLER, when this broker is not (any more) the controller;
                KAFKA_STORAGE_ERROR, when the store cannot be written.
            StoreError: an operation is not allowed.
        """
        if self._epoch_version is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        guard = Check(znodes.CONTROLLER_EPOCH, self._epoch_version)
        try:
            return (await self._store.multi([guard, *operations]))[1:]
        except BadVersionError:
            if (await self._store.get(znodes.CONTROLLER_EPOCH)).version == self._epoch_version:
                raise
            self._epoch_version = None
            raise KafkaError(ErrorCode.NOT_CONTROLLER) from None
        except StoreUnavailableError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    async def write_each(self, transactions: Mapping[K, Sequence[Operation]]) -> dict[K, KafkaError]:
        """Write each transaction by itself; the errors of those that changed nothing.

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
