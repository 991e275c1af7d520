"""AddOffsetsToTxn v0-4: a transaction is about to commit a group's offsets (KIP-98).

It adds the partition of `__consumer_offsets` that keeps the group. PRODUCER_FENCED from v2 on (KIP-588).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.errors import KafkaError, fenced_since
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.server.handlers import handles
from barnabas.server.requests.context import RequestContext
from barnabas.types import GROUP_METADATA_TOPIC, ProducerIdentity, TopicPartition

if TYPE_CHECKING:
    from barnabas.server.broker import Broker

_FENCED_FROM = 2
#: a producer that asks adds partitions itself
_TRANSACTION_VERSION = 0


@handles(AddOffsetsToTxnRequest)
async def add_offsets_to_txn(
    broker: Broker, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    partition = TopicPartition(GROUP_METADATA_TOPIC, broker.groups.partition_for(request.group_id))
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    try:
        added = broker.transactions.add_partitions(
            request.transactional_id, producer, [partition], _TRANSACTION_VERSION
        )
        if added is not None:
            await added
    except KafkaError as error:
        raise fenced_since(_FENCED_FROM, context.api_version, error) from error
    return AddOffsetsToTxnResponse()
