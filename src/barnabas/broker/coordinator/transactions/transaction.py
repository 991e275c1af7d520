"""The state of a transactional id as an immutable value.

Each step returns a new value, which the coordinator stores.

    Empty ──► Ongoing ──► PrepareCommit ──► CompleteCommit ──► Ongoing ...
                 └──────► PrepareAbort  ──► CompleteAbort  ──► Ongoing ...

A prepared transaction is decided: the coordinator always writes its markers and completes it. With
transactions v2 (KIP-890) the Prepare states raise the producer's epoch. So a late request of an ended
transaction cannot change the next one. A v2 producer may abort without knowing whether a partition was
added. So with v2 PrepareAbort can also follow Empty and the Complete states.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from barnabas.base.types import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ProducerEpoch,
    ProducerId,
    ProducerIdentity,
    TopicPartition,
)

MAX_EPOCH: ProducerEpoch = 2**15 - 1
#: from this version of transactions on, each transaction raises the producer's epoch
EPOCH_BUMP_VERSION = 2
NOT_STARTED = -1


class TransactionState(IntEnum):
    """The states of a transaction, with their numbers in the stored record."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def label(self) -> str:
        """The state's name in DescribeTransactions, for example ``PrepareCommit``."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """Whether the transaction is decided and its markers are being written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


def is_exhausted(epoch: ProducerEpoch) -> bool:
    """Whether a producer at `epoch` needs a new producer id. The highest epoch is reserved for fencing."""
    return epoch >= MAX_EPOCH - 1


class Transaction(NamedTuple):
    """The stored state of a transactional id; times are milliseconds since the epoch."""

    producer_id: ProducerId
    epoch: ProducerEpoch
    timeout_ms: int
    updated_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NOT_STARTED
    #: the producer id before the latest change of the state
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    #: the producer id after the completion, if the epochs of `producer_id` are used up
    next_producer_id: ProducerId = NO_PRODUCER_ID
    #: the version of the transaction protocol that the producer uses
    client_version: int = 0

    @property
    def producer(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.epoch)

    def initialized(self, producer: ProducerIdentity, timeout_ms: int, now_ms: int) -> Transaction:
        """Return the state after InitProducerId has assigned `producer`: Empty, without partitions."""
        return self._replace(
            producer_id=producer.producer_id,
            epoch=producer.epoch,
            timeout_ms=timeout_ms,
            updated_ms=now_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            started_ms=NOT_STARTED,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
        )

    def with_partitions(
        self, added: Iterable[TopicPartition], client_version: int, now_ms: int
    ) -> Transaction:
        """Return the state with more partitions. If no transaction is open, one begins at `now_ms`.

        `client_version` is the version of transactions that the producer uses.
        """
        return self._replace(
            updated_ms=now_ms,
            state=TransactionState.ONGOING,
            partitions=self.partitions | frozenset(added),
            started_ms=self.started_ms if self.state is TransactionState.ONGOING else now_ms,
            previous_producer_id=self.producer_id,
            client_version=client_version,
        )

    def prepared(
        self, *, commit: bool, client_version: int, now_ms: int, next_producer_id: ProducerId = NO_PRODUCER_ID
    ) -> Transaction:
        """Return the state after the decision to commit or abort.

        `client_version` is the version of transactions that the producer uses. From version 2 on, the new
        state has a higher epoch. If the epochs of the producer id are used up, `next_producer_id` is the id
        with which the producer continues.
        """
        epoch = self.epoch
        if client_version >= EPOCH_BUMP_VERSION:
            epoch = min(epoch + 1, MAX_EPOCH)
        return self._replace(
            epoch=epoch,
            updated_ms=now_ms,
            state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            # A transaction that is aborted before it has a partition begins now.
            started_ms=self.started_ms if self.state is TransactionState.ONGOING else now_ms,
            previous_producer_id=self.producer_id,
            next_producer_id=next_producer_id,
            client_version=client_version,
        )

    def fenced(self, server_version: int, now_ms: int) -> Transaction:
        """Return the PrepareAbort state of a transaction that the coordinator itself aborts.

        The coordinator does so, for example, after a timeout. The new state has a higher epoch, which fences
        the producer. `server_version` is the finalized level of ``transaction.version``, and becomes the
        `client_version` of the new state.
        """
        prepared = self.prepared(commit=False, client_version=server_version, now_ms=now_ms)
        return prepared._replace(epoch=min(self.epoch + 1, MAX_EPOCH))

    def completed(self, now_ms: int) -> Transaction:
        """Return the Complete state, for a prepared transaction whose markers are all written."""
        producer = self.following_producer
        return self._replace(
            producer_id=producer.producer_id,
            epoch=producer.epoch,
            updated_ms=now_ms,
            state=(
                TransactionState.COMPLETE_COMMIT
                if self.state is TransactionState.PREPARE_COMMIT
                else TransactionState.COMPLETE_ABORT
            ),
            partitions=frozenset(),
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
        )

    @property
    def following_producer(self) -> ProducerIdentity:
        """The producer id and epoch that the producer has after the prepared transaction is complete."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdentity(self.next_producer_id, 0)
        return self.producer

    def is_ending_for(self, producer: ProducerIdentity) -> bool:
        """Whether markers of the last transaction of `producer` are still being written.

        The producer must wait until they are written. The producer id in `producer` selects the transaction,
        and its epoch does not matter.
        """
        return self.state.is_prepared and producer.producer_id in (
            self.producer_id,
            self.following_producer.producer_id,
        )

    def is_timed_out(self, now_ms: int) -> bool:
        return self.state is TransactionState.ONGOING and self.started_ms + self.timeout_ms < now_ms

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether the id has no open or prepared transaction, and has not changed for `expiration_ms`."""
        is_idle = self.state is not TransactionState.ONGOING and not self.state.is_prepared
        return is_idle and self.updated_ms + expiration_ms <= now_ms


def new_transaction(producer_id: ProducerId, timeout_ms: int, now_ms: int) -> Transaction:
    """Return the first state of a transactional id: Empty, with no epoch used."""
    return Transaction(producer_id, NO_PRODUCER_EPOCH, timeout_ms, now_ms)
