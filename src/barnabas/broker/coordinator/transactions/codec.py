"""The records of `__transaction_state`, in Apache Kafka's format.

A key is its kind (int16, 0) and the transactional id; a value is its version (int16) and the value's fields;
a null value deletes the id.
"""

from __future__ import annotations

import struct

from barnabas.base.errors import ProtocolError
from barnabas.base.types import TopicPartition
from barnabas.broker.coordinator.transactions.transaction import Transaction, TransactionState
from barnabas.kafka.protocol.codec import decode, encode
from barnabas.kafka.protocol.records.transaction_log import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from barnabas.kafka.records import Record

TRANSACTION_KIND = 0
_PREFIX = struct.Struct(">h")


def transaction_record(
    transactional_id: str, transaction: Transaction | None, transaction_version: int = 0
) -> Record:
    """The record that stores a transactional id's state, or deletes it.

    `transaction_version` is the finalized level of the feature: from 1 on the value has tagged fields.
    """
    key = _PREFIX.pack(TRANSACTION_KIND) + encode(TransactionLogKey(transactional_id=transactional_id), 0)
    if transaction is None:
        return Record(key, None)
    version = min(transaction_version, 1)
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state.value,
        transaction_partitions=_partitions(transaction),
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.client_version,
    )
    return Record(key, _PREFIX.pack(version) + encode(value, version))


def decode_key(key: bytes) -> str | None:
    """The transactional id, None in a key of a kind that is not known.

    Raises:
        ProtocolError: the bytes are no key.
    """
    if _prefix(key) != TRANSACTION_KIND:
        return None
    return decode(TransactionLogKey, 0, key, _PREFIX.size).transactional_id


def decode_value(value: bytes) -> Transaction:
    """What is stored of a transactional id.

    Raises:
        ProtocolError: the bytes are no such value, or of a version from the future.
    """
    stored = decode(TransactionLogValue, _prefix(value), value, _PREFIX.size)
    try:
        state = TransactionState(stored.transaction_status)
    except ValueError:
        raise ProtocolError(f"a transaction is stored in state {stored.transaction_status}") from None
    return Transaction(
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


def _partitions(transaction: Transaction) -> list[PartitionsSchema] | None:
    if transaction.state is TransactionState.EMPTY:
        return None
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(partition)
    return [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in topics.items()]


def _prefix(data: bytes) -> int:
    try:
        (number,) = _PREFIX.unpack_from(data)
    except struct.error:
        raise ProtocolError(f"{len(data)} bytes are too short for a record's version") from None
    return int(number)
