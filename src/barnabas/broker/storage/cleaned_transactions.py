"""Decides about transactions in a cleaning: which batches to drop, which markers and index entries to keep.

A cleaning drops the records of an aborted transaction at once. It keeps a marker while the log has a batch of
the marker's transaction, even a batch without records. After that, it keeps the marker until the marker's
delete horizon. So a reader of a record also reads how its transaction ended (KIP-98, KIP-534).
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.base.types import Buffer, ProducerId
from barnabas.broker.storage.transaction_index import AbortedTransaction
from barnabas.kafka.records.batch import BatchHeader
from barnabas.kafka.records.control import decode_end_transaction


class CleanedTransactions:
    """Follows the transactions while a cleaning reads a log.

    Call, in the order of offsets, `is_aborted` for each batch of records and `end` for each control batch.
    """

    __slots__ = ("_aborted", "_coming", "_committed", "_has_batches")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Create the object.

        `aborted` must have every aborted transaction that begins in the offsets that the cleaning reads.
        """
        self._coming = sorted(aborted, key=lambda aborted: -aborted.first_offset)
        #: aborted transactions that have begun and whose marker is still ahead
        self._aborted: dict[ProducerId, AbortedTransaction] = {}
        #: producers of such a transaction from which the log still has a batch
        self._has_batches: set[ProducerId] = set()
        #: producers with a batch in a transaction that was not aborted and whose marker is still ahead
        self._committed: set[ProducerId] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch of records belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        self._reach(header.last_offset)
        producer_id = header.producer_id
        if producer_id in self._aborted:
            self._has_batches.add(producer_id)
            return True
        self._committed.add(producer_id)
        return False

    def end(self, header: BatchHeader, batch: Buffer) -> tuple[bool, AbortedTransaction | None]:
        """Return whether a control batch can be dropped, and the transaction index entry to keep.

        The entry is the aborted transaction that the marker ends; None if there is no entry to keep.

        Raises:
            KafkaError: CORRUPT_MESSAGE, the marker cannot be decoded.
        """
        self._reach(header.last_offset)
        if not header.record_count:
            return True, None  # an earlier cleaning has emptied it
        marker = decode_end_transaction(header, batch)
        if marker is None:
            return False, None
        producer_id = header.producer_id
        if marker.commit:
            is_needed = producer_id in self._committed
            self._committed.discard(producer_id)
            return not is_needed, None
        aborted = self._aborted.pop(producer_id, None)
        if producer_id not in self._has_batches:
            return True, None
        self._has_batches.discard(producer_id)
        return False, aborted

    def _reach(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            aborted = self._coming.pop()
            if aborted.last_offset >= offset:  # else it ended before the pass began
                self._aborted[aborted.producer_id] = aborted
