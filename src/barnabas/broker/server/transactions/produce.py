"""Checks a Produce request with a transactional id before the append (KIP-98, KIP-890)."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeAlias

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import ProducerIdentity, TopicPartition
from barnabas.broker.awaitables import MaybeAwaitable, then
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.replication.partition import Partition
from barnabas.broker.server.transactions.verification import (
    LastMarker,
    TransactionalWrite,
    TransactionVerifier,
    Verdicts,
    still_valid,
)
from barnabas.kafka.protocol.messages.produce import ProduceRequest
from barnabas.kafka.records.batch import TRANSACTIONAL_FLAG, BatchHeader, low_attributes, parse_header

#: topic (name or id, as in the request) and partition of a batch
Name: TypeAlias = tuple[str | bytes, int]
#: error of each rejected batch
Refusals: TypeAlias = dict[Name, KafkaError]
#: the producer's last marker in the partition of each transactional batch
LastMarkers: TypeAlias = dict[Name, LastMarker]

#: from this version a client knows TRANSACTION_ABORTABLE, from the next it leaves adding partitions to us
_ABORTABLE_FROM = 11
_IMPLICIT_FROM = 12

#: coordinator errors that clients do not retry in Produce; they get a retriable error instead
_RETRIED = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def last_markers(replicas: ReplicaManager, request: ProduceRequest, version: int) -> LastMarkers:
    """Return the present markers, before admitted batches wait. After the wait, `ended` compares them.

    The result is empty for a request without a transactional id. It is also empty from version 12 on, because
    each transaction then has its own producer epoch.
    """
    markers: LastMarkers = {}
    if request.transactional_id is None or version >= _IMPLICIT_FROM:
        return markers
    for topic in request.topic_data:
        key = topic.name or topic.topic_id
        for data in topic.partition_data:
            if data.records and low_attributes(data.records) & TRANSACTIONAL_FLAG:
                with suppress(KafkaError):  # `refusals` after the wait has the error
                    partition = replicas.find(key, data.index)
                    producer = _producer(parse_header(data.records))
                    markers[key, data.index] = LastMarker.of(partition, producer)
    return markers


def ended(markers: LastMarkers) -> Refusals:
    """Return INVALID_TXN_STATE for the batches whose transaction has ended in their partition since then."""
    return {
        name: KafkaError(ErrorCode.INVALID_TXN_STATE, "the transaction has ended meanwhile")
        for name, marker in markers.items()
        if not marker.is_last
    }


def refusals(
    replicas: ReplicaManager, verifier: TransactionVerifier, request: ProduceRequest, version: int
) -> MaybeAwaitable[Refusals]:
    """Return the errors of those batches in a transactional request that the broker must not append.

    The result has the errors by topic (name or id, as in the request) and partition index. It is empty if the
    broker may append all batches.

    Ask the transaction coordinator about partitions in which the transaction has no records yet. If its
    answer must be awaited, return an awaitable of the result. Before version 12, the transaction can end
    meanwhile without a new epoch of the producer. Then the batches of partitions in which it has ended get
    INVALID_TXN_STATE.

    Args:
        replicas: finds the partitions of this broker.
        verifier: asks the transaction coordinators.
        request: the Produce request.
        version: version of the request.
    """
    assert request.transactional_id is not None
    names: dict[TopicPartition, Name] = {}
    markers: dict[TopicPartition, LastMarker] = {}
    # those in which the transaction has records already
    in_use: dict[Name, Partition] = {}
    # those whose batch has a sequence above 0: each transaction of version 2 begins with 0
    later: list[LastMarker] = []
    # one that cannot be found may be by the time of the append, but nobody has admitted the batch
    missing: Refusals = {}
    producer: ProducerIdentity | None = None
    for topic in request.topic_data:
        key = topic.name or topic.topic_id
        for data in topic.partition_data:
            if not data.records or not low_attributes(data.records) & TRANSACTIONAL_FLAG:
                continue
            try:
                partition = replicas.find(key, data.index)
            except KafkaError as error:
                missing[key, data.index] = error
                continue
            header = parse_header(data.records)
            producer = _producer(header)
            if partition.log.producers.is_in_transaction(producer):
                in_use[key, data.index] = partition
            else:
                names[partition.topic_partition] = key, data.index
                marker = markers[partition.topic_partition] = LastMarker.of(partition, producer)
                if header.base_sequence > 0:
                    later.append(marker)
    if producer is None or (not names and not verifier.is_asking(request.transactional_id)):
        return missing
    adds = version >= _IMPLICIT_FROM
    before = {} if adds else {name: LastMarker.of(each, producer) for name, each in in_use.items()}
    verdicts = verifier.admit(TransactionalWrite(request.transactional_id, producer, list(names), adds))

    def refused(verdicts: Verdicts) -> Refusals:
        if not adds:
            return missing | ended(before) | _refusals(still_valid(verdicts, markers), names, version)
        not_first = {
            names[partition.topic_partition]: KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "a producer begins in each partition with sequence 0"
            )
            for partition, _, _ in later
            if partition.is_leader and not partition.log.producers.knows(producer.producer_id)
        }
        return missing | not_first | _refusals(verdicts, names, version)

    return then(verdicts, refused)


def _producer(header: BatchHeader) -> ProducerIdentity:
    return ProducerIdentity(header.producer_id, header.producer_epoch)


def _refusals(verdicts: Verdicts, names: dict[TopicPartition, Name], version: int) -> Refusals:
    return {
        names[partition]: KafkaError(
            _client_code(code, version), "the coordinator refuses the transaction's write"
        )
        for partition, code in verdicts.items()
        if code is not ErrorCode.NONE
    }


def _client_code(code: ErrorCode, version: int) -> ErrorCode:
    """Return the error code that the producer gets for a transaction coordinator's error `code`.

    - COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR become NOT_ENOUGH_REPLICAS,
      because producers retry after this error.
    - PRODUCER_FENCED becomes INVALID_PRODUCER_EPOCH.
    - CONCURRENT_TRANSACTIONS becomes NOT_ENOUGH_REPLICAS before version 12 of Produce.
    - TRANSACTION_ABORTABLE becomes INVALID_TXN_STATE before version 11 of Produce.
    - Any other code stays the same.

    Args:
        code: error code of the coordinator.
        version: version of the Produce request.
    """
    if code in _RETRIED or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < _IMPLICIT_FROM):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return code
