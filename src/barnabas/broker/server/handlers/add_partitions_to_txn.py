"""AddPartitionsToTxn v0-5: adds partitions to a transaction before a producer writes to them (KIP-98).

Up to v3 a producer sends the request for its own transaction. From v4 on a broker sends it for several
transactions (KIP-890), to add partitions or only to verify them. If one partition does not exist, the
coordinator adds none, and all other partitions get OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.base.errors import ErrorCode, KafkaError, fenced_since
from barnabas.base.types import ProducerIdentity, TopicPartition
from barnabas.broker.awaitables import MaybeAwaitable, recovered, resolve, then
from barnabas.broker.coordinator import TransactionCoordinator
from barnabas.broker.metadata.image import ClusterImage
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import transaction_coordinator
from barnabas.broker.server.requests.needs import checked_by_handler, refusal
from barnabas.broker.server.requests.order import BetweenBrokers
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from barnabas.kafka.security.acls import UNRESTRICTED, Access, Operation, ResourceType

_BATCHED_FROM = 4
_FENCED_FROM = 2
#: the versions of transactions that a producer of the old requests, and of the new ones, speaks
_EXPLICIT, _IMPLICIT = 0, 2


def _failed(request: AddPartitionsToTxnRequest, error: KafkaError) -> AddPartitionsToTxnResponse:
    results = [
        _results(topic, {TopicPartition(topic.name, number): error.code for number in topic.partitions})
        for topic in request.v3_and_below_topics
    ]
    return AddPartitionsToTxnResponse(error_code=error.code, results_by_topic_v3_and_below=results)


@handles(
    AddPartitionsToTxnRequest,
    needs=[
        checked_by_handler(
            "up to v3: transactional id WRITE and topic WRITE; from v4 on: cluster CLUSTER_ACTION"
        )
    ],
    on_error=_failed,
    pieces=[Pieces("transactions", "results_by_transaction", size=16)],
    order=BetweenBrokers(since=4),
    confirmed_by=transaction_coordinator("v3_and_below_transactional_id", "transactions.transactional_id"),
)
def add_partitions_to_txn(
    transactions: TransactionCoordinator,
    view: BrokerView,
    context: RequestContext,
    request: AddPartitionsToTxnRequest,
) -> MaybeAwaitable[AddPartitionsToTxnResponse]:
    if context.api_version >= _BATCHED_FROM:
        if not context.access.on_cluster(Operation.CLUSTER_ACTION):
            raise refusal(ResourceType.CLUSTER)
        return _serve_batched(transactions, view.image, context, request)
    if not context.access.on_transactional_id(Operation.WRITE, request.v3_and_below_transactional_id):
        raise refusal(ResourceType.TRANSACTIONAL_ID)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return then(
        _serve(transactions, view.image, context, transaction, _EXPLICIT),
        lambda results: AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results),
    )


async def _serve_batched(
    transactions: TransactionCoordinator,
    image: ClusterImage,
    context: RequestContext,
    request: AddPartitionsToTxnRequest,
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=await resolve(_serve(transactions, image, context, each, _IMPLICIT)),
            )
            for each in request.transactions
        ]
    )


def _serve(
    transactions: TransactionCoordinator,
    image: ClusterImage,
    context: RequestContext,
    transaction: AddPartitionsToTxnTransaction,
    version: int,
) -> MaybeAwaitable[list[AddPartitionsToTxnTopicResult]]:
    transactional_id = transaction.transactional_id
    producer = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    partitions = [TopicPartition(t.name, number) for t in transaction.topics for number in t.partitions]

    def results(errors: Mapping[TopicPartition, ErrorCode]) -> list[AddPartitionsToTxnTopicResult]:
        return [_results(topic, errors) for topic in transaction.topics]

    def refused(error: KafkaError) -> list[AddPartitionsToTxnTopicResult]:
        code = fenced_since(_FENCED_FROM, context.api_version, error).code
        return results(dict.fromkeys(partitions, code))

    def add() -> MaybeAwaitable[list[AddPartitionsToTxnTopicResult]]:
        if transaction.verify_only:
            return results(transactions.verify_partitions(transactional_id, producer, partitions))
        added = transactions.add_partitions(transactional_id, producer, partitions, version)
        return then(added, lambda _: results({}))

    access = context.access if version == _EXPLICIT else UNRESTRICTED  # brokers ask for their clients
    errors = _impossible(image, access, partitions)
    return results(errors) if errors else recovered(add, refused)


def _impossible(
    image: ClusterImage, access: Access, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Return an error for each partition if at least one of them cannot be added to a transaction.

    - TOPIC_AUTHORIZATION_FAILED: the client may not write to the partition.
    - UNKNOWN_TOPIC_OR_PARTITION: the partition does not exist.
    - OPERATION_NOT_ATTEMPTED: every other partition.

    If all partitions can be added, return an empty dictionary.
    """
    errors = {}
    for tp in partitions:
        if not access.on_topic(Operation.WRITE, tp.topic):
            errors[tp] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif image.partition(tp) is None:
            errors[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            errors[tp] = ErrorCode.OPERATION_NOT_ATTEMPTED
    return errors if set(errors.values()) - {ErrorCode.OPERATION_NOT_ATTEMPTED} else {}


def _results(
    topic: AddPartitionsToTxnTopic, errors: Mapping[TopicPartition, ErrorCode]
) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        name=topic.name,
        results_by_partition=[
            AddPartitionsToTxnPartitionResult(
                partition_index=number,
                partition_error_code=errors.get(TopicPartition(topic.name, number), ErrorCode.NONE),
            )
            for number in topic.partitions
        ],
    )
