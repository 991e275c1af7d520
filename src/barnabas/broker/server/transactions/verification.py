"""Admits a write to a partition only if the producer's transaction includes the partition (KIP-890).

Without this check, a write that arrives after the end of its transaction would begin a new transaction, which
no client ends. Such a hanging transaction blocks read_committed consumers. So before the first write of a
transaction to a partition, the leader asks the coordinator whether the partition belongs to the transaction.
For a producer with transaction version 2, it asks the coordinator to add the partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import Offset, ProducerIdentity, TopicPartition
from barnabas.broker.awaitables import MaybeAwaitable, is_awaitable, resolve
from barnabas.broker.replication.partition import Partition
from barnabas.broker.view import BrokerView

Verdicts: TypeAlias = dict[TopicPartition, ErrorCode]

#: the transaction version whose producers do not add partitions themselves
_IMPLICIT_VERSION = 2


class TransactionalWrite(NamedTuple):
    """A write to admit: the producer, the partitions, and whether to add these to the transaction."""

    transactional_id: str
    producer: ProducerIdentity
    partitions: Collection[TopicPartition]
    adds: bool


class LastMarker(NamedTuple):
    """The offset of a producer's last transaction marker in a partition.

    It is taken when the leader sends its request to the coordinator. After the response, `still_valid`
    compares it with the last marker at that time.
    """

    partition: Partition
    producer: ProducerIdentity
    offset: Offset

    @classmethod
    def of(cls, partition: Partition, producer: ProducerIdentity) -> LastMarker:
        return cls(partition, producer, partition.log.producers.last_marker(producer.producer_id))

    @property
    def is_last(self) -> bool:
        """Whether the producer has no later marker in the partition now."""
        return self.partition.log.producers.last_marker(self.producer.producer_id) == self.offset


def still_valid(verdicts: Verdicts, markers: Mapping[TopicPartition, LastMarker]) -> Verdicts:
    """Return `verdicts`, with INVALID_TXN_STATE for partitions in which the transaction has ended meanwhile.

    The transaction has ended in a partition if the producer has a later marker there than in `markers`. The
    check is necessary for producers before transaction version 2, which do not raise their epoch with each
    transaction.

    Args:
        verdicts: the coordinator's error code for each partition.
        markers: the producer's last marker in each partition, from before the request to the coordinator. A
            partition without an entry is not checked.
    """
    return {
        partition: code
        if code is not ErrorCode.NONE or partition not in markers or markers[partition].is_last
        else ErrorCode.INVALID_TXN_STATE
        for partition, code in verdicts.items()
    }


class Coordinators(Protocol):
    """The operations of transaction coordinators that the leader of a partition uses to admit a write."""

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        version: int,
    ) -> MaybeAwaitable[None]:
        """Add partitions to the producer's transaction.

        If the coordinator is on another broker, or must still store the change, return an awaitable that
        waits until the change is stored.

        Args:
            transactional_id: transactional id of the producer.
            producer: id and epoch of the producer.
            partitions: partitions to add.
            version: transaction version of the producer.

        Raises:
            KafkaError: the coordinator rejects the partitions, or there is no coordinator now. If the result
                is an awaitable, the awaitable can raise the error.
        """

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Collection[TopicPartition]
    ) -> MaybeAwaitable[Verdicts]:
        """Return an error code for each partition: NONE if the partition is in the producer's transaction.

        If the coordinator is on another broker, or must prove that it is no former one, return an awaitable
        of the codes.

        Raises:
            KafkaError: there is no coordinator now, or it rejects the whole request. If the result is an
                awaitable, the awaitable can raise the error.
        """


class TransactionVerifier:
    """Asks the transaction coordinators whether to admit writes.

    The writes of one transactional id get their verdicts (error codes) in the order of their arrival.
    """

    def __init__(self, view: BrokerView, coordinators: Coordinators) -> None:
        self._view = view
        self._coordinators = coordinators
        #: by transactional id: the future for which the next write must wait
        self._queue: dict[str, asyncio.Future[None]] = {}

    def is_asking(self, transactional_id: str) -> bool:
        """Whether writes of this transactional id wait for an answer of the transaction coordinator.

        While they wait, later writes wait, too.
        """
        return transactional_id in self._queue

    def admit(self, write: TransactionalWrite) -> MaybeAwaitable[Verdicts]:
        """Return an error code for each partition: NONE if the producer's transaction may write to it.

        The error codes are those of the transaction coordinator. For example:

        - TRANSACTION_ABORTABLE: the partition was not added to the transaction.
        - CONCURRENT_TRANSACTIONS: the previous transaction has not ended yet.

        This method raises no KafkaError. If the coordinator rejects the whole request, or cannot be found,
        each partition gets the code of this error. A write that adds no partitions is always allowed if
        ``transaction.partition.verification.enable`` is false.

        Return an awaitable of the codes if they are not known at once. An earlier write of the same
        transactional id may still wait for its codes: the new write then waits, too.

        The caller must await the result in the task that then writes. If another task writes, the next write
        of the same transactional id can come first.
        """
        if self.is_asking(write.transactional_id):
            return self._in_turn(write, None)
        verdicts = self._ask(write)
        if is_awaitable(verdicts) or _is_early(write, verdicts):
            return self._in_turn(write, verdicts)
        return verdicts

    def _in_turn(
        self, write: TransactionalWrite, verdicts: MaybeAwaitable[Verdicts] | None
    ) -> Awaitable[Verdicts]:
        before = self._queue.get(write.transactional_id)
        mine = self._queue[write.transactional_id] = asyncio.get_running_loop().create_future()

        async def wait() -> Verdicts:
            try:
                if before is not None:
                    await before
                return await self._ask_until_ended(write, verdicts)
            finally:
                mine.set_result(None)
                if self._queue.get(write.transactional_id) is mine:
                    del self._queue[write.transactional_id]

        return wait()

    async def _ask_until_ended(
        self, write: TransactionalWrite, verdicts: MaybeAwaitable[Verdicts] | None
    ) -> Verdicts:
        """Return the verdicts. While the previous transaction has not ended, ask the coordinator again.

        After ``add.partitions.to.txn.retry.backoff.max.ms``, return the last verdicts.

        Args:
            write: the write to admit.
            verdicts: the coordinator's first answer, an error code for each partition; None if the
                coordinator has not been asked yet.
        """
        config = self._view.config
        loop = asyncio.get_running_loop()
        deadline = loop.time() + config.add_partitions_to_txn_retry_backoff_max_ms / 1000
        while True:
            if verdicts is None:
                verdicts = self._ask(write)
            answer = await resolve(verdicts)
            if not _is_early(write, answer) or loop.time() >= deadline:
                return answer
            await asyncio.sleep(config.add_partitions_to_txn_retry_backoff_ms / 1000)
            verdicts = None

    def _ask(self, write: TransactionalWrite) -> MaybeAwaitable[Verdicts]:
        transactional_id, producer, partitions, adds = write
        coordinators = self._coordinators
        try:
            if adds:
                added = coordinators.add_partitions(transactional_id, producer, partitions, _IMPLICIT_VERSION)
                if is_awaitable(added):
                    return _answered(_when_added(added, partitions), partitions)
            elif self._view.config.transaction_partition_verification_enable:
                verified = coordinators.verify_partitions(transactional_id, producer, partitions)
                return _answered(verified, partitions) if is_awaitable(verified) else verified
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
        return dict.fromkeys(partitions, ErrorCode.NONE)


async def _when_added(added: Awaitable[None], partitions: Collection[TopicPartition]) -> Verdicts:
    await added
    return dict.fromkeys(partitions, ErrorCode.NONE)


async def _answered(verdicts: Awaitable[Verdicts], partitions: Collection[TopicPartition]) -> Verdicts:
    """Return the verdicts; if the coordinator rejects the whole request, its error for each partition."""
    try:
        return await verdicts
    except KafkaError as error:
        return dict.fromkeys(partitions, error.code)


def _is_early(write: TransactionalWrite, verdicts: Verdicts) -> bool:
    return write.adds and ErrorCode.CONCURRENT_TRANSACTIONS in verdicts.values()
