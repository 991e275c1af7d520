"""TxnOffsetCommit v0-5: stores offsets that become valid when the transaction commits (KIP-98, KIP-447).

Up to v4 the client must first add the group's partition to the transaction by AddOffsetsToTxn. From v5 on the
broker adds the partition (KIP-890). The broker rejects the offset of each topic or partition that does not
exist, and stores the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import GROUP_METADATA_TOPIC, ProducerIdentity, TopicPartition
from barnabas.broker.awaitables import MaybeAwaitable, is_awaitable, recovered, resolve, then
from barnabas.broker.coordinator import GroupCoordinator
from barnabas.broker.metadata.image import ClusterImage
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.replication.partition import Partition
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import group_coordinator
from barnabas.broker.server.requests.needs import Group, TransactionalId, each_topic
from barnabas.broker.server.requests.new_names import NewGroups
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.server.transactions.verification import (
    LastMarker,
    TransactionalWrite,
    TransactionVerifier,
    Verdicts,
)
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.kafka.security.acls import Operation


@dataclass(frozen=True, slots=True)
class Ports:
    """The parts of the broker that this module's handler uses."""

    groups: GroupCoordinator
    replicas: ReplicaManager
    view: BrokerView
    verifier: TransactionVerifier


#: an error code for each topic name and partition
Codes: TypeAlias = Mapping[tuple[str, int], int]

_ABORTABLE_FROM = 4
_IMPLICIT_FROM = 5

#: errors of a transaction coordinator, as the client of a group coordinator gets them
_TOLD = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
}


@handles(
    TxnOffsetCommitRequest,
    needs=[TransactionalId(Operation.WRITE), Group(Operation.READ), each_topic(Operation.READ, "topics")],
    pieces=[Pieces("topics.partitions", size=512)],
    confirmed_by=group_coordinator(),
    new_names=NewGroups,
)
def txn_offset_commit(
    ports: Ports, context: RequestContext, request: TxnOffsetCommitRequest
) -> MaybeAwaitable[TxnOffsetCommitResponse]:
    topics = request.topics
    request.topics = [
        accepted for topic in topics if (accepted := _existing(ports.view.image, topic)).partitions
    ]
    if not request.topics:
        return _answer(topics, {})

    def refused(error: KafkaError) -> Codes:
        return {(t.name, p.partition_index): error.code for t in request.topics for p in t.partitions}

    codes = recovered(lambda: then(_commit(ports, context.api_version, request), _codes), refused)
    return then(codes, lambda codes: _answer(topics, codes))


def _commit(
    ports: Ports, version: int, request: TxnOffsetCommitRequest
) -> MaybeAwaitable[TxnOffsetCommitResponse]:
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    topic_ids = {topic.name: ports.view.image.topics[topic.name].id for topic in request.topics}
    replica = _replica(ports, request.group_id)
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    # From `_IMPLICIT_FROM` on, the log knows the producer's next transaction by its higher epoch.
    last_marker = None if replica is None or version >= _IMPLICIT_FROM else LastMarker.of(replica, producer)

    def check_transaction() -> None:
        if last_marker is not None and not last_marker.is_last:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the transaction has ended meanwhile")

    admitted = _admit(ports, version, request, replica)
    commit = partial(ports.groups.commit_in_transaction, request, topic_ids, check_transaction)
    return _after(admitted, commit) if is_awaitable(admitted) else commit()


async def _after(
    admitted: Awaitable[None], commit: Callable[[], MaybeAwaitable[TxnOffsetCommitResponse]]
) -> TxnOffsetCommitResponse:
    await admitted
    return await resolve(commit())


def _replica(ports: Ports, group_id: str) -> Partition | None:
    """Return this broker's replica with the offsets of a group; None if there is no such partition.

    Raises:
        KafkaError: NOT_COORDINATOR, this broker no longer has the partition.
    """
    partition = TopicPartition(GROUP_METADATA_TOPIC, ports.groups.partition_for(group_id))
    try:
        return ports.replicas.find(*partition) if ports.view.image.partition(partition) else None
    except KafkaError as error:  # the partition has moved to other brokers, and the coordinator with it
        raise KafkaError(ErrorCode.NOT_COORDINATOR) from error


def _admit(
    ports: Ports, version: int, request: TxnOffsetCommitRequest, replica: Partition | None
) -> MaybeAwaitable[None]:
    """Make sure that the producer's transaction contains the group's partition of `__consumer_offsets`.

    From version `_IMPLICIT_FROM` of the API on, add the partition to the transaction if it is missing. Return
    None, or an awaitable that waits for the transaction coordinator.

    `replica` is this broker's replica of the partition; None if the partition does not exist.

    Raises:
        KafkaError: an error of the transaction coordinator. If the result is an awaitable, the awaitable
            raises the error.
    """
    partition = TopicPartition(GROUP_METADATA_TOPIC, ports.groups.partition_for(request.group_id))
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    if replica is not None and replica.log.producers.is_in_transaction(producer):
        return None

    def check(verdicts: Verdicts) -> None:
        code = verdicts[partition]
        if code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_FROM:
            code = ErrorCode.INVALID_TXN_STATE
        if code is not ErrorCode.NONE:
            raise KafkaError(_TOLD.get(code, code))

    write = TransactionalWrite(request.transactional_id, producer, [partition], version >= _IMPLICIT_FROM)
    return then(ports.verifier.admit(write), check)


def _codes(response: TxnOffsetCommitResponse) -> Codes:
    return {(t.name, p.partition_index): p.error_code for t in response.topics for p in t.partitions}


def _answer(topics: Sequence[TxnOffsetCommitRequestTopic], codes: Codes) -> TxnOffsetCommitResponse:
    """Return the response to a request with `topics`. A partition that is not in `codes` does not exist."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes.get((topic.name, partition.partition_index), unknown),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


def _existing(image: ClusterImage, topic: TxnOffsetCommitRequestTopic) -> TxnOffsetCommitRequestTopic:
    there = [p for p in topic.partitions if image.partition(TopicPartition(topic.name, p.partition_index))]
    return TxnOffsetCommitRequestTopic(name=topic.name, partitions=there)
