"""TxnOffsetCommit v0-5: stores offsets that become valid when the transaction commits (KIP-98, KIP-447).

Up to v4 the client must first add the group's partition to the transaction by AddOffsetsToTxn. v5 adds it
(KIP-890). The broker rejects the offset of each topic or partition that does not exist, and stores the
others.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import GROUP_METADATA_TOPIC, ProducerIdentity, TopicPartition
from barnabas.broker.awaitables import resolve
from barnabas.broker.coordinator import GroupCoordinator
from barnabas.broker.metadata.image import ClusterImage
from barnabas.broker.replication.manager import ReplicaManager
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
    still_valid,
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
async def txn_offset_commit(
    ports: Ports, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    wanted = request.topics
    request.topics = [
        accepted for topic in wanted if (accepted := _existing(ports.view.image, topic)).partitions
    ]
    codes: dict[tuple[str, int], int] = {}
    if request.topics:
        try:
            answer = await _commit(ports, context, request)
            codes = {(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}
        except KafkaError as error:
            codes = {(t.name, p.partition_index): error.code for t in request.topics for p in t.partitions}
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes.get(
                            (topic.name, partition.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        ),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in wanted
        ]
    )


async def _commit(
    ports: Ports, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    await _admit(ports, context.api_version, request)
    topic_ids = {topic.name: ports.view.image.topics[topic.name].id for topic in request.topics}
    return await resolve(ports.groups.commit_in_transaction(request, topic_ids))


async def _admit(ports: Ports, version: int, request: TxnOffsetCommitRequest) -> None:
    partition = TopicPartition(GROUP_METADATA_TOPIC, ports.groups.partition_for(request.group_id))
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    try:
        replica = ports.replicas.find(*partition) if ports.view.image.partition(partition) else None
    except KafkaError as error:  # the partition has moved to other brokers, and the coordinator with it
        raise KafkaError(ErrorCode.NOT_COORDINATOR) from error
    if replica is not None and replica.log.producers.is_in_transaction(producer):
        return
    adds = version >= _IMPLICIT_FROM
    markers = {} if adds or replica is None else {partition: LastMarker.of(replica, producer)}
    write = TransactionalWrite(request.transactional_id, producer, [partition], adds)
    verdicts = still_valid(await resolve(ports.verifier.admit(write)), markers)
    code = verdicts[partition]
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_FROM:
        code = ErrorCode.INVALID_TXN_STATE
    if code is not ErrorCode.NONE:
        raise KafkaError(_TOLD.get(code, code))


def _existing(image: ClusterImage, topic: TxnOffsetCommitRequestTopic) -> TxnOffsetCommitRequestTopic:
    there = [p for p in topic.partitions if image.partition(TopicPartition(topic.name, p.partition_index))]
    return TxnOffsetCommitRequestTopic(name=topic.name, partitions=there)
