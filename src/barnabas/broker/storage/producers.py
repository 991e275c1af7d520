"""A log's state of each idempotent producer (KIP-98): its epoch and its last five batches.

The log remembers five batches, because a producer may have five requests in flight on a connection. A
producer that gets no response for a batch sends the batch again. If the log already has this batch, the
broker appends nothing, and answers with the offset that the batch has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import NO_PRODUCER_EPOCH, UNKNOWN_OFFSET, Offset, ProducerId, ProducerIdentity
from barnabas.broker.storage.transaction_index import AbortedTransaction
from barnabas.kafka.records.batch import NO_SEQUENCE, SEQUENCE_LIMIT, TRANSACTIONAL_FLAG, BatchHeader
from barnabas.kafka.records.control import EndTransaction

WINDOW = 5
NO_COORDINATOR_EPOCH = -1


class Origin(Enum):
    """The source of an append, which decides the checks."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


#: makes a `ProducerBatch` of its fields, at half the cost of calling it
_batch = tuple.__new__


class ProducerBatch(NamedTuple):
    """A producer's batch that the log remembers, to recognize when the producer sends it again."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) % SEQUENCE_LIMIT

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


class Producer:
    """A log's state of one producer. `batches` has its last batches in its current epoch, oldest first."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_marker",
        "last_timestamp",
        "producer_id",
        "transaction_start",
    )

    def __init__(self, producer_id: ProducerId, epoch: int = NO_PRODUCER_EPOCH) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: list[ProducerBatch] = []
        self.last_timestamp = -1
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        #: the offset of its last marker; -1 if none was appended since the log was opened
        self.last_marker = UNKNOWN_OFFSET
        #: the first offset of the transaction under way, -1 when there is none
        self.transaction_start = UNKNOWN_OFFSET

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else UNKNOWN_OFFSET

    def wrote(self, last_sequence: int, last_offset: Offset, offset_delta: int, timestamp: int) -> None:
        """Store a batch of the current epoch, so that `duplicate` recognizes it. Keep only the last five.

        `offset_delta` is the last offset minus the first one. `timestamp` is the batch's largest, in ms.
        """
        batches = self.batches
        batches.append(_batch(ProducerBatch, (last_sequence, last_offset, offset_delta, timestamp)))
        if len(batches) > WINDOW:
            del batches[0]
        self.last_timestamp = timestamp

    def duplicate(self, header: BatchHeader) -> ProducerBatch | None:
        """Return the batch among the producer's last five that `header` repeats; None if there is none."""
        if header.producer_epoch == self.epoch:
            last_sequence = header.last_sequence
            for batch in self.batches:
                if batch.last_sequence == last_sequence and batch.offset_delta == header.last_offset_delta:
                    return batch
        return None


@dataclass(slots=True)
class _Rejection:
    """A rejected batch, which its producer must send again before its later batches."""

    epoch: int
    sequence: int
    #: the error in the response
    code: ErrorCode
    #: the number of later batches that get the same error, which is the most that a producer has in flight
    followers: int = WINDOW


#: producers with a refused batch that a log remembers; the oldest are forgotten
_MAX_REFUSED = 1000
#: an empty dict that most of the thousands of logs share; it never changes
_NOTHING: dict[ProducerId, Any] = cast(Any, MappingProxyType({}))
_NONE_ENDED: list[tuple[Offset, Offset]] = cast(Any, ())


class Producers:
    """The state of a log's producers at `end_offset`. The log owns it."""

    __slots__ = ("_open_transactions", "_producers", "_refused", "end_offset", "ended_transactions")

    def __init__(self) -> None:
        self.end_offset = 0
        self._producers: dict[ProducerId, Producer] = _NOTHING
        #: the rejected batch that each producer must send again next
        self._refused: dict[ProducerId, _Rejection] = _NOTHING
        #: first offset of each producer's open transaction, ascending
        self._open_transactions: dict[ProducerId, int] = _NOTHING
        #: first and last offset of each ended transaction whose marker is not below the high watermark yet
        self.ended_transactions = _NONE_ENDED

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._producers.values())

    def get(self, producer_id: ProducerId) -> Producer | None:
        return self._producers.get(producer_id)

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest open transaction; None if no transaction is open.

        Read_committed consumers stop there. A transaction counts as open until its marker is below the high
        watermark: until then, the marker may be lost with the leader.
        """
        opened = self._open_transactions
        first_open = next(iter(opened.values())) if opened else None
        if not self.ended_transactions:
            return first_open
        first_ended = min(first for first, _ in self.ended_transactions)
        return first_ended if first_open is None else min(first_open, first_ended)

    def committed(self, high_watermark: Offset) -> None:
        """Stop counting transactions as open whose markers are below `high_watermark`, and so committed."""
        self.ended_transactions = [t for t in self.ended_transactions if t[1] >= high_watermark]

    def is_in_transaction(self, producer: ProducerIdentity) -> bool:
        """Whether the producer has written to an open transaction in this log."""
        known = self._producers.get(producer.producer_id)
        return (
            known is not None and known.epoch == producer.epoch and known.transaction_start != UNKNOWN_OFFSET
        )

    def knows(self, producer_id: ProducerId) -> bool:
        """Whether the log has a state of the producer: a batch or a marker that has not expired."""
        return producer_id in self._producers

    def last_marker(self, producer_id: ProducerId) -> Offset:
        """Return the offset of the producer's last marker; -1 if there is none since the log was opened."""
        known = self._producers.get(producer_id)
        return UNKNOWN_OFFSET if known is None else known.last_marker

    def check_marker(
        self, producer: ProducerIdentity, coordinator_epoch: int, *, must_raise_epoch: bool
    ) -> None:
        """Check whether a marker may be appended for the producer.

        With transactions v2, a marker has a higher producer epoch than the transaction that it ends. If both
        epochs are the same, the marker repeats the marker of an earlier transaction. The repeated marker must
        not end the open transaction.

        Args:
            producer: producer id and producer epoch in the marker.
            coordinator_epoch: epoch of the transaction coordinator in the marker.
            must_raise_epoch: whether the marker belongs to transactions v2.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, the marker's epoch is too low, or the marker is repeated while
                a transaction is open; TRANSACTION_COORDINATOR_FENCED, a later coordinator has written a
                marker.
        """
        known = self._producers.get(producer.producer_id)
        if known is None:
            return
        if coordinator_epoch < known.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {coordinator_epoch} has been followed by {known.coordinator_epoch}",
            )
        is_open = known.transaction_start != UNKNOWN_OFFSET
        if producer.epoch < known.epoch or (must_raise_epoch and is_open and producer.epoch == known.epoch):
            raise _stale(producer, known)

    def next_in_line(
        self, producer_id: ProducerId, epoch: int, sequence: int, is_transactional: bool
    ) -> Producer | None:
        """Return the producer if a batch with this epoch and sequence is certainly its next batch.

        `check` would accept this batch, too, but takes longer. In all other cases return None. The caller
        must then call `check`.
        """
        producer = self._producers.get(producer_id)
        if (
            producer is None
            or not producer.batches
            or producer.epoch != epoch
            or epoch < 0
            or sequence != (producer.batches[-1].last_sequence + 1) % SEQUENCE_LIMIT
            or is_transactional == (producer.transaction_start == UNKNOWN_OFFSET)
            or self._refused
        ):
            return None
        return producer

    def check(self, header: BatchHeader, origin: Origin) -> ProducerBatch | None:
        """Check whether the batch can be appended.

        A producer that the log does not know may begin with any sequence. Batches from the leader
        (`Origin.REPLICATION`) are not checked. Of a coordinator's batches and of markers, only the epoch is
        checked.

        Returns:
            None if it can be appended; if the log already has the batch, that batch.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, the producer has written with a newer epoch.
                OUT_OF_ORDER_SEQUENCE_NUMBER, batches are missing, or the batch is older than the remembered
                ones. INVALID_TXN_STATE, the batch is not part of the open transaction. Or the error of an
                earlier batch that was rejected (`note_rejection`).
        """
        producer = self._producers.get(header.producer_id)
        if origin is Origin.REPLICATION:
            return None
        if producer is None:
            if self._refused:
                self._check_after_rejection(header)
            return None  # what is not known (any more) may begin with any sequence
        if origin is Origin.CLIENT:
            repeated = producer.duplicate(header)
            if repeated is not None:
                if self._refused:  # it was written before it was refused
                    self._refused.pop(header.producer_id, None)
                return repeated
        if header.producer_epoch < producer.epoch:
            raise _stale(ProducerIdentity(header.producer_id, header.producer_epoch), producer)
        if origin is Origin.CLIENT and not header.is_control:
            if self._refused:
                self._check_after_rejection(header)
            _check_sequence(producer, header)
            if producer.transaction_start != UNKNOWN_OFFSET and not header.is_transactional:
                raise KafkaError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"producer {header.producer_id} wrote outside of its open transaction",
                )
        return None

    def note_rejection(self, header: BatchHeader, code: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR) -> None:
        """Store that a valid batch was rejected with `code`.

        `check` then rejects the producer's later batches, until the producer has sent the rejected batch
        again (`_check_after_rejection` selects the error). This method does nothing in these cases:

        - The batch is a marker.
        - The log knows the producer, and the batch is not the producer's next one.
        - An earlier batch of the producer was rejected, and has not been sent again yet.

        Reason: a log that does not know the producer accepts any sequence. A later batch that is already on
        its way would be accepted, and librdkafka would then report the rejected batch as delivered.
        """
        if header.is_control:
            return
        known = self._producers.get(header.producer_id)
        if (
            known is not None
            and known.epoch == header.producer_epoch
            and header.base_sequence != (known.last_sequence + 1) % SEQUENCE_LIMIT
        ):
            return  # mostly it has been written, and this request is late: no client needs to send it again
        earlier = self._refused.get(header.producer_id)
        if (
            earlier is not None
            and earlier.epoch == header.producer_epoch
            and earlier.sequence != header.base_sequence
        ):
            return  # the one refused first comes next
        if self._refused is _NOTHING:
            self._refused = {}
        if len(self._refused) >= _MAX_REFUSED:
            del self._refused[next(iter(self._refused))]
        self._refused[header.producer_id] = _Rejection(header.producer_epoch, header.base_sequence, code)

    def _check_after_rejection(self, header: BatchHeader) -> None:
        """Raise KafkaError if the producer must first send a rejected batch again (`note_rejection`).

        The error code depends on how many later batches were rejected since then:

        - The first few may already have been in flight. They get the error code of the rejected batch. The
          producer then sends all of them again in order.
        - All others get OUT_OF_ORDER_SEQUENCE_NUMBER.

        The first few do not get OUT_OF_ORDER_SEQUENCE_NUMBER. After this code, librdkafka would send the
        unanswered batches of all partitions again in a new epoch, and the log would not recognize them.
        """
        refused = self._refused.get(header.producer_id)
        if refused is None or refused.epoch != header.producer_epoch:
            return
        ahead = (header.base_sequence - refused.sequence) % SEQUENCE_LIMIT
        if not 0 < ahead < SEQUENCE_LIMIT // 2:
            return  # the one that was refused, or one before it, which another broker may have had first
        code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if refused.followers:
            refused.followers -= 1
            code = refused.code
        raise KafkaError(
            code,
            f"producer {header.producer_id} epoch {refused.epoch} sent sequence {header.base_sequence}, "
            f"{refused.sequence} comes next: it was refused before",
        )

    def update(self, header: BatchHeader, base_offset: int) -> None:
        """Apply a batch of records with a producer id, which was appended at `base_offset`."""
        # All at once: to look up a field of a named tuple takes longer than to unpack it.
        _, _, _, _, _, attributes, last_delta, _, timestamp, producer_id, epoch, sequence, _ = header
        producer = self._producers.get(producer_id)
        if producer is None or producer.epoch != epoch:
            producer = self._of_epoch(producer_id, epoch)
        if self._refused:
            self._refused.pop(producer_id, None)
        last_sequence = NO_SEQUENCE if sequence == NO_SEQUENCE else (sequence + last_delta) % SEQUENCE_LIMIT
        producer.wrote(last_sequence, base_offset + last_delta, last_delta, timestamp)
        if attributes & TRANSACTIONAL_FLAG and producer.transaction_start == UNKNOWN_OFFSET:
            producer.transaction_start = base_offset
            if self._open_transactions is _NOTHING:
                self._open_transactions = {}
            self._open_transactions[producer_id] = base_offset

    def end_transaction(
        self, header: BatchHeader, marker: EndTransaction, offset: Offset
    ) -> AbortedTransaction | None:
        """End the producer's transaction by the marker at `offset`.

        Returns:
            The aborted transaction for read_committed consumers; None if the marker commits, or if the
            transaction has no records.
        """
        producer = self._of_epoch(header.producer_id, header.producer_epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_marker = offset
        producer.last_timestamp = header.max_timestamp
        producer.transaction_start = UNKNOWN_OFFSET
        opened = self._open_transactions
        start = opened.pop(producer.producer_id, None) if opened else None
        if start is None:
            return None
        if self.ended_transactions is _NONE_ENDED:
            self.ended_transactions = []
        self.ended_transactions.append((start, offset))
        if marker.commit:
            return None
        stable = next(iter(self._open_transactions.values()), offset + 1)
        return AbortedTransaction(producer.producer_id, start, offset, stable)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers without records for `expiration_ms` and without an open transaction."""
        silent = [
            producer.producer_id
            for producer in self
            if now_ms - producer.last_timestamp >= expiration_ms
            and producer.transaction_start == UNKNOWN_OFFSET
        ]
        for producer_id in silent:
            del self._producers[producer_id]

    def restore(self, producers: list[Producer], end_offset: int) -> None:
        """Replace the state with the producers from a snapshot at `end_offset`."""
        self.end_offset = end_offset
        self._producers = {producer.producer_id: producer for producer in producers} or _NOTHING
        self.ended_transactions = _NONE_ENDED
        in_transaction = [p for p in producers if p.transaction_start != UNKNOWN_OFFSET]
        in_transaction.sort(key=lambda producer: producer.transaction_start)
        self._open_transactions = {p.producer_id: p.transaction_start for p in in_transaction} or _NOTHING

    def _of_epoch(self, producer_id: ProducerId, epoch: int) -> Producer:
        producer = self._producers.get(producer_id)
        if producer is None:
            if self._producers is _NOTHING:
                self._producers = {}
            producer = self._producers[producer_id] = Producer(producer_id, epoch)
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
        return producer


def _stale(producer: ProducerIdentity, known: Producer) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer.producer_id} has epoch {producer.epoch}, {known.epoch} has written since",
    )


def _check_sequence(producer: Producer, header: BatchHeader) -> None:
    sequence = header.base_sequence
    if header.producer_epoch != producer.epoch:
        if sequence == 0 or producer.epoch == NO_PRODUCER_EPOCH:
            return
        expected = 0
    else:
        expected = (producer.last_sequence + 1) % SEQUENCE_LIMIT
        if sequence == expected:
            return
    raise KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {producer.producer_id} epoch {header.producer_epoch} sent sequence {sequence}, "
        f"{expected} comes next",
    )
