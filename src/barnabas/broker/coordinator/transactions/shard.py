"""The transactional ids of one partition of `__transaction_state`, and the operations on them.

The methods of `TransactionShard` for requests are operations of the coordinator runtime. An operation reads
the shard, and returns a `Result`: the records to append and the response. `replay` applies committed records.
The runtime replays the records of an operation before the next operation on the same id, so each operation
sees a complete state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import NoReturn, TypeVar

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.text import logger_of
from barnabas.base.types import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ProducerEpoch,
    ProducerId,
    ProducerIdentity,
    TopicPartition,
)
from barnabas.broker.coordinator.contract import Result, ShardContext
from barnabas.broker.coordinator.transactions.codec import (
    TransactionRecord,
    decode_record,
    transaction_record,
)
from barnabas.broker.coordinator.transactions.ending import must_end
from barnabas.broker.coordinator.transactions.marker_queue import MarkerQueue, MarkerWriter
from barnabas.broker.coordinator.transactions.transaction import (
    EPOCH_BUMP_VERSION,
    Transaction,
    TransactionState,
    is_exhausted,
    new_transaction,
)

logger = logger_of(__name__, is_limited=True)

T = TypeVar("T")


class TransactionShard:
    """One shard of the transaction coordinator: the transactional ids of one `__transaction_state` partition.

    Args:
        context: what the coordinator runtime gives to the shard, such as the clock and the timers.
        version: returns the finalized level of the feature ``transaction.version``.
        writer: writes markers to the partitions' leaders.
    """

    def __init__(
        self, context: ShardContext[TransactionShard], version: Callable[[], int], writer: MarkerWriter
    ) -> None:
        self.transactions: dict[str, Transaction] = {}
        #: by transactional id: the producer's epoch before it was last raised. A producer that got no
        #: response repeats its request with this epoch. It is not stored, as in Kafka: after a failover the
        #: repeated request is fenced
        self._repeatable: dict[str, ProducerEpoch] = {}
        #: by transactional id: the end of its last transaction, while a request waits for it
        self._endings: dict[str, asyncio.Future[None]] = {}
        self._clock = context.clock
        self._version = version
        self._write = context.write
        self._markers = MarkerQueue(writer, context.timers, context.epoch, self._complete_later)

    # --- the runtime's side ---

    def decode(self, key: bytes, value: bytes | None) -> TransactionRecord | None:
        """Decode a record of `__transaction_state`. Return None for an unknown kind.

        Raises:
            ProtocolError: the kind is known, but the record cannot be decoded.
        """
        record = decode_record(key, value)
        if record is None:
            logger.warning("skipped a record of unknown type in __transaction_state")
        return record

    def replay(self, record: TransactionRecord) -> None:
        """Apply one committed record of `__transaction_state`."""
        transactional_id, transaction, _ = record
        if transaction is not None:
            self.transactions[transactional_id] = transaction
        else:
            self.transactions.pop(transactional_id, None)
            self._repeatable.pop(transactional_id, None)

    def replay_pending(self, producer_id: ProducerId, record: TransactionRecord) -> None:
        """Ignore a transaction's record, and log a warning: a transaction coordinator writes none."""
        logger.warning(
            "__transaction_state holds a record that producer %d wrote in a transaction", producer_id
        )

    def end_transaction(self, producer_id: ProducerId, commit: bool) -> None:
        """Ignore the end of a transaction, because `replay_pending` ignores its records."""

    def loaded(self) -> None:
        """Begin to complete the prepared transactions, after the runtime has replayed the log."""
        for transactional_id, transaction in list(self.transactions.items()):
            if transaction.state.is_prepared:
                self._write(
                    transactional_id, partial(TransactionShard.resume, transactional_id=transactional_id)
                )

    def unload(self, error: KafkaError) -> None:
        """Stop writing markers: the next coordinator writes them. Complete the futures of `ending`."""
        self._markers.cancel()
        for transactional_id in list(self._endings):
            self._ended(transactional_id)

    # --- the producer's identity ---

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Whether the next InitProducerId or EndTxn of a transactional id needs a new producer id.

        It needs one if the transactional id is new, or if the epochs of its producer id are used up.
        """
        transaction = self.transactions.get(transactional_id)
        return transaction is None or is_exhausted(transaction.epoch)

    def init_producer(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdentity | None, fresh: ProducerId
    ) -> Result[ProducerIdentity]:
        """Handle InitProducerId: return a producer id and an epoch that fences earlier producers.

        Args:
            transactional_id: the id.
            timeout_ms: transaction timeout, in milliseconds.
            expected: the identity of a producer that continues after an error (KIP-360); None for a new one.
            fresh: an unused producer id if `needs_producer_id(transactional_id)` is True; NO_PRODUCER_ID if
                not.

        Raises:
            KafkaError: PRODUCER_FENCED, another producer has used the transactional id after `expected`;
                CONCURRENT_TRANSACTIONS, the last transaction is prepared, or is open (this operation begins
                to abort it), or a new producer id is necessary and `fresh` is NO_PRODUCER_ID. The producer
                retries after CONCURRENT_TRANSACTIONS.
        """
        now = self._clock.now_ms()
        transaction = self.transactions.get(transactional_id) or new_transaction(fresh, timeout_ms, now)
        if expected is not None and not _may_go_on(transaction, expected):
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if transaction.state.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if transaction.state is TransactionState.ONGOING:
            return self._fence(transactional_id, transaction, _try_again)
        producer = self._next_identity(transactional_id, transaction, expected, fresh)
        following = transaction.initialized(producer, timeout_ms, now)

        def initialized(error: KafkaError | None) -> ProducerIdentity:
            if error is not None:
                raise error
            if expected is None:
                self._repeatable.pop(transactional_id, None)
            elif producer != transaction.producer:
                self._repeatable[transactional_id] = transaction.epoch
            return producer

        return Result(records=[self._record(transactional_id, following)], then=initialized)

    def _next_identity(
        self,
        transactional_id: str,
        transaction: Transaction,
        expected: ProducerIdentity | None,
        fresh: ProducerId,
    ) -> ProducerIdentity:
        epoch = transaction.epoch
        if is_exhausted(epoch) and (expected is None or expected.epoch == epoch):
            return ProducerIdentity(_required(fresh), 0)
        if expected is None or epoch in (NO_PRODUCER_EPOCH, expected.epoch):
            return ProducerIdentity(_required(transaction.producer_id), epoch + 1)
        if expected.epoch == self._repeatable.get(transactional_id):
            return transaction.producer
        raise KafkaError(ErrorCode.PRODUCER_FENCED)

    # --- partitions ---

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        version: int,
    ) -> Result[None]:
        """Add partitions to the transaction. If none is open, begin one.

        `version` is the version of transactions that the producer uses.

        Raises:
            KafkaError: INVALID_PRODUCER_ID_MAPPING, the transactional id is unknown or has another producer
                id; PRODUCER_FENCED, the producer has another epoch; CONCURRENT_TRANSACTIONS, the last
                transaction is prepared.
        """
        transaction = self._of_producer(transactional_id, producer)
        if transaction.state is TransactionState.ONGOING and transaction.partitions.issuperset(partitions):
            return Result()
        following = transaction.with_partitions(partitions, version, self._clock.now_ms())
        return Result(records=[self._record(transactional_id, following)])

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return NONE for each partition that is in the transaction, TRANSACTION_ABORTABLE for the others.

        Raises:
            KafkaError: INVALID_PRODUCER_ID_MAPPING, the transactional id is unknown or has another producer
                id; PRODUCER_FENCED, the producer has another epoch; CONCURRENT_TRANSACTIONS, the last
                transaction is prepared.
        """
        transaction = self._of_producer(transactional_id, producer)
        return {
            tp: ErrorCode.NONE if tp in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for tp in partitions
        }

    def _of_producer(self, transactional_id: str, producer: ProducerIdentity) -> Transaction:
        transaction = self.transactions.get(transactional_id)
        if (
            transaction is not None
            and producer == transaction.following_producer
            and transaction.state.is_prepared
        ):
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if transaction is None or transaction.producer_id != producer.producer_id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if transaction.epoch != producer.epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return transaction

    # --- the end ---

    def ending(self, transactional_id: str) -> asyncio.Future[None] | None:
        """Return a future that is done when the prepared transaction is complete. None if none is prepared.

        All callers get the same future, so none may cancel it. The future is also done when the shard is
        unloaded.
        """
        transaction = self.transactions.get(transactional_id)
        if transaction is None or not transaction.state.is_prepared:
            return None
        if transactional_id not in self._endings:
            self._endings[transactional_id] = asyncio.get_running_loop().create_future()
        return self._endings[transactional_id]

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        *,
        commit: bool,
        version: int,
        fresh: ProducerId,
    ) -> Result[ProducerIdentity]:
        """Handle EndTxn: commit or abort the transaction.

        The response has the identity that the producer must use in its next transaction. The coordinator
        stores the decision, responds, writes the markers, and then stores the completion. If the request
        repeats an earlier decision, it changes nothing.

        Args:
            transactional_id: the id.
            producer: the producer id and epoch in the request.
            commit: whether to commit.
            version: version of transactions that the producer uses.
            fresh: an unused producer id if `needs_producer_id(transactional_id)` is True; NO_PRODUCER_ID if
                not, or before version 2.

        Raises:
            KafkaError: INVALID_PRODUCER_ID_MAPPING, the transactional id is unknown or has another producer
                id; PRODUCER_FENCED, the producer has another epoch, or wants to commit a transaction that the
                coordinator has aborted; INVALID_TXN_STATE, the state does not allow the decision;
                CONCURRENT_TRANSACTIONS, the markers of the last transaction are being written, or a new
                producer id is necessary and `fresh` is NO_PRODUCER_ID.
        """
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if not must_end(transaction, producer, commit=commit, version=version):
            return Result(transaction.producer)
        next_producer_id = NO_PRODUCER_ID
        if version >= EPOCH_BUMP_VERSION and is_exhausted(transaction.epoch):
            next_producer_id = _required(fresh)
        following = transaction.prepared(
            commit=commit,
            client_version=version,
            now_ms=self._clock.now_ms(),
            next_producer_id=next_producer_id,
        )

        def answer() -> ProducerIdentity:
            if version >= EPOCH_BUMP_VERSION:
                self._repeatable[transactional_id] = transaction.epoch
            return following.following_producer

        return self._end(transactional_id, following, answer)

    def abort_timed_out(self, transactional_id: str) -> Result[None]:
        """Abort the transaction and fence its producer, if the transaction has timed out.

        If not, or if the transactional id is unknown, do nothing.
        """
        transaction = self.transactions.get(transactional_id)
        now = self._clock.now_ms()
        if transaction is None or not transaction.is_timed_out(now):
            return Result()

        def aborted() -> None:
            logger.info(
                "aborted the transaction of %r after %d ms", transactional_id, now - transaction.started_ms
            )

        return self._fence(transactional_id, transaction, aborted)

    def expire(self, transactional_id: str, expiration_ms: int) -> Result[None]:
        """Delete the transactional id if it was unused for `expiration_ms`.

        If the id is unknown, or has an open or prepared transaction, do nothing.
        """
        transaction = self.transactions.get(transactional_id)
        if transaction is None or not transaction.is_expired(self._clock.now_ms(), expiration_ms):
            return Result()
        return Result(records=[transaction_record(transactional_id, None)])

    def resume(self, transactional_id: str) -> Result[None]:
        """Begin to write the markers of a transaction that was loaded in a prepared state.

        If no transaction of the id is prepared, do nothing.
        """
        transaction = self.transactions.get(transactional_id)
        if transaction is not None and transaction.state.is_prepared:
            self._markers.add(transactional_id, transaction)
            self._markers.write(transactional_id)
        return Result()

    def complete(self, transactional_id: str) -> Result[None]:
        """Store the completion of a prepared transaction, because all its markers are written.

        Do nothing if no transaction of the id is prepared.
        """
        transaction = self.transactions.get(transactional_id)
        if transaction is None or not transaction.state.is_prepared:
            return Result()

        def completed(error: KafkaError | None) -> None:
            if error is not None:
                self._markers.retry(transactional_id, f"its completion could not be stored: {error}")
            else:
                self._markers.completed(transactional_id)
                self._ended(transactional_id)

        record = self._record(transactional_id, transaction.completed(self._clock.now_ms()))
        return Result(records=[record], then=completed)

    def describe(self, transactional_id: str) -> tuple[Transaction, Collection[TopicPartition]]:
        """Return a transactional id's state, and the partitions of its transaction.

        If the transaction is prepared, return only the partitions to which no marker was written yet.

        Raises:
            KafkaError: TRANSACTIONAL_ID_NOT_FOUND, there is no such transactional id.
        """
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        if transaction.state.is_prepared:
            return transaction, self._markers.left(transactional_id)
        return transaction, transaction.partitions

    # --- inside ---

    def _end(self, transactional_id: str, prepared: Transaction, answer: Callable[[], T]) -> Result[T]:
        def decided(error: KafkaError | None) -> T:
            if error is not None:
                raise error
            self._markers.add(transactional_id, prepared)
            return answer()

        return Result(
            records=[self._record(transactional_id, prepared)],
            then=decided,
            afterwards=lambda: self._markers.write(transactional_id),
        )

    def _fence(self, transactional_id: str, transaction: Transaction, answer: Callable[[], T]) -> Result[T]:
        """Abort the open transaction of a transactional id, and fence its producer by a higher epoch.

        Return a `Result` with the record that stores the decision. When it is stored, `answer` is called. Its
        result is the response; if it raises an error, this error is the response.
        """
        version = self._version()

        def fenced() -> T:
            if version >= EPOCH_BUMP_VERSION:
                self._repeatable[transactional_id] = transaction.epoch
            else:
                self._repeatable.pop(transactional_id, None)
            return answer()

        prepared = transaction.fenced(version, self._clock.now_ms())
        return self._end(transactional_id, prepared, fenced)

    def _ended(self, transactional_id: str) -> None:
        ending = self._endings.pop(transactional_id, None)
        if ending is not None:
            ending.set_result(None)

    def _complete_later(self, transactional_id: str) -> None:
        self._write(transactional_id, partial(TransactionShard.complete, transactional_id=transactional_id))

    def _record(self, transactional_id: str, transaction: Transaction) -> TransactionRecord:
        return transaction_record(transactional_id, transaction, self._version())


def _may_go_on(transaction: Transaction, expected: ProducerIdentity) -> bool:
    """Whether the producer id in an InitProducerId request is valid for the transactional id (KIP-360).

    The caller checks the epoch. The producer id is valid in three cases:

    - The transactional id is new.
    - It is the present producer id of the transactional id.
    - It is the previous producer id, and the epoch is 32,766 or above. After epoch 32,766, the coordinator
      assigns a new producer id. A producer that got no response repeats its request with the previous one.

    Args:
        transaction: the state of the transactional id.
        expected: the producer id and epoch in the request.
    """
    return (
        transaction.epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == transaction.producer_id
        or (expected.producer_id == transaction.previous_producer_id and is_exhausted(expected.epoch))
    )


def _required(producer_id: ProducerId) -> ProducerId:
    """Return `producer_id`. Raises KafkaError CONCURRENT_TRANSACTIONS if it is NO_PRODUCER_ID.

    The client retries after this error.
    """
    if producer_id == NO_PRODUCER_ID:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return producer_id


def _try_again() -> NoReturn:
    raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the ongoing transaction is being aborted")
