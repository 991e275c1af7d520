"""AddOffsetsToTxn v0-4: adds a group to a transaction, which will commit the group's offsets (KIP-98).

The coordinator adds the partition of `__consumer_offsets` that stores the group. From v2 on a fenced producer
gets PRODUCER_FENCED (KIP-588).
"""

from __future__ import annotations

from barnabas.base.errors import KafkaError, fenced_since
from barnabas.base.types import GROUP_METADATA_TOPIC, ProducerIdentity, TopicPartition
from barnabas.broker.awaitables import resolve
from barnabas.broker.coordinator import GroupCoordinator, TransactionCoordinator
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import transaction_coordinator
from barnabas.broker.server.requests.needs import Group, TransactionalId
from barnabas.kafka.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from barnabas.kafka.security.acls import Operation

_FENCED_FROM = 2
#: a producer that asks adds partitions itself
_TRANSACTION_VERSION = 0


@handles(
    AddOffsetsToTxnRequest,
    needs=[TransactionalId(Operation.WRITE), Group(Operation.READ)],
    confirmed_by=transaction_coordinator(),
)
async def add_offsets_to_txn(
    transactions: TransactionCoordinator,
    groups: GroupCoordinator,
    context: RequestContext,
    request: AddOffsetsToTxnRequest,
) -> AddOffsetsToTxnResponse:
    partition = TopicPartition(GROUP_METADATA_TOPIC, groups.partition_for(request.group_id))
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    try:
        await resolve(
            transactions.add_partitions(request.transactional_id, producer, [partition], _TRANSACTION_VERSION)
        )
    except KafkaError as error:
        raise fenced_since(_FENCED_FROM, context.api_version, error) from error
    return AddOffsetsToTxnResponse()
