"""DescribeTransactions v0: returns the state of transactional ids that this broker coordinates (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.base.errors import KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.coordinator import TransactionCoordinator
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import transaction_coordinator
from barnabas.broker.server.requests.needs import checked_by_handler, each_transactional_id
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.kafka.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from barnabas.kafka.security.acls import Access, Operation


@handles(
    DescribeTransactionsRequest,
    needs=[
        each_transactional_id(Operation.DESCRIBE, "transactional_ids", "transaction_states"),
        checked_by_handler("the response has only topics on which the client has DESCRIBE"),
    ],
    pieces=[Pieces("transactional_ids", "transaction_states", size=64, unique=True)],
    is_heavy=True,
    listing="transaction_states.topics.partitions",
    confirmed_by=transaction_coordinator("transactional_ids"),
)
def describe_transactions(
    transactions: TransactionCoordinator, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            _describe(transactions, name, context.access) for name in request.transactional_ids
        ]
    )


def _describe(
    transactions: TransactionCoordinator, transactional_id: str, access: Access
) -> TransactionState:
    try:
        transaction, partitions = transactions.describe(transactional_id)
    except KafkaError as error:
        return TransactionState(transactional_id=transactional_id, error_code=error.code)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=_by_topic(tp for tp in partitions if access.on_topic(Operation.DESCRIBE, tp.topic)),
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> list[TopicData]:
    topics: dict[str, TopicData] = {}
    for name, number in sorted(partitions):
        topics.setdefault(name, TopicData(topic=name)).partitions.append(number)
    return list(topics.values())
