"""The records of `__transaction_state`, in Apache Kafka's format.

A key has a kind (int16, always 0) and the transactional id. A value has a version (int16) and its fields. A
null value deletes the transactional id.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.base.errors import ProtocolError
from barnabas.base.types import NO_PRODUCER_ID, TopicPartition
from barnabas.broker.coordinator.record_prefix import PREFIX, decode_key, decode_value, prefix_of
from barnabas.broker.coordinator.transactions.transaction import Transaction, TransactionState
from barnabas.kafka.protocol.codec import encode
from barnabas.kafka.protocol.records.transaction_log import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

TRANSACTION_KIND = 0


class TransactionRecord(NamedTuple):
    """The state of a transactional id. `transaction` is None if the record deletes the id.

    Use `transaction_record` or `decode_record` to make one.
    """

    transactional_id: str
    transaction: Transaction | None
    #: the version of the stored value
    version: int = 0

    def encode(self) -> tuple[bytes, bytes | None]:
        transactional_id, transaction, version = self
        key = encode(TransactionLogKey(transactional_id=transactional_id), 0, PREFIX.pack(TRANSACTION_KIND))
        if transaction is None:
            return key, None
        value = TransactionLogValue(
            producer_id=transaction.producer_id,
            previous_producer_id=transaction.previous_producer_id,
            next_producer_id=transaction.next_producer_id,
            producer_epoch=transaction.epoch,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_status=transaction.state,
            transaction_partitions=_partitions(transaction),
            transaction_last_update_timestamp_ms=transaction.updated_ms,
            transaction_start_timestamp_ms=transaction.started_ms,
            client_transaction_version=transaction.client_version,
        )
        return key, encode(value, version, PREFIX.pack(version))


def transaction_record(
    transactional_id: str, transaction: Transaction | None, transaction_version: int = 0
) -> TransactionRecord:
    """Return the record that stores a transactional id's state, or deletes it if `transaction` is None.

    `transaction_version` is the finalized level of the feature ``transaction.version``. From level 1 on the
    value has tagged fields for the previous and next producer id and the client's version.
    """
    if transaction is None:
        return TransactionRecord(transactional_id, None)
    if transaction_version < 1:
        transaction = transaction._replace(
            previous_producer_id=NO_PRODUCER_ID, next_producer_id=NO_PRODUCER_ID, client_version=0
        )
    return TransactionRecord(transactional_id, transaction, min(transaction_version, 1))


def decode_record(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """Decode a record. Return None if its kind is unknown.

    Raises:
        ProtocolError: the record cannot be decoded, or its value has an unknown later version.
    """
    if prefix_of(key) != TRANSACTION_KIND:
        return None
    transactional_id = decode_key(TransactionLogKey, key).transactional_id
    if value is None:
        return TransactionRecord(transactional_id, None)
    stored = decode_value(TransactionLogValue, value)
    try:
        state = TransactionState(stored.transaction_status)
    except ValueError:
        raise ProtocolError(f"a transaction is stored in state {stored.transaction_status}") from None
    transaction = Transaction(
        producer_id=stored.producer_id,
        epoch=stored.producer_epoch,
        timeout_ms=stored.transaction_timeout_ms,
        updated_ms=stored.transaction_last_update_timestamp_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(topic.topic, partition)
            for topic in stored.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        started_ms=stored.transaction_start_timestamp_ms,
        previous_producer_id=stored.previous_producer_id,
        next_producer_id=stored.next_producer_id,
        client_version=stored.client_transaction_version,
    )
    return TransactionRecord(transactional_id, transaction, prefix_of(value))


def _partitions(transaction: Transaction) -> list[PartitionsSchema] | None:
    if transaction.state is TransactionState.EMPTY:
        return None
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(partition)
    return [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in topics.items()]
