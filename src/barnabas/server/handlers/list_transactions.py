"""ListTransactions v0-2: the transactional ids that this broker coordinates (KIP-664).

Filtered by state, by producer id, by how long they have run (v1, KIP-994), by a pattern of the id (v2,
KIP-1152). Kafka reads the pattern as RE2 does, this broker as Python does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from barnabas.coordinator import Transaction
from barnabas.coordinator import TransactionState as State
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from barnabas.server.context import RequestContext
from barnabas.server.handlers import handles

if TYPE_CHECKING:
    from barnabas.server.broker import Broker

#: states that Apache Kafka knows beside those that are stored; nothing is ever seen in them
_NEVER_SEEN = {"Dead", "PrepareEpochFence"}


@handles(ListTransactionsRequest)
def list_transactions(
    broker: Broker, context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    pattern = _compiled(request.transactional_id_pattern)
    known = _NEVER_SEEN.union(state.label for state in State)
    now = broker.clock.now_ms()
    return ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in known],
        transaction_states=[
            TransactionState(
                transactional_id=name,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.label,
            )
            for name, transaction in broker.transactions.transactions()
            if _passes(request, transaction, now) and (pattern is None or pattern.fullmatch(name))
        ],
    )


def _passes(request: ListTransactionsRequest, transaction: Transaction, now_ms: int) -> bool:
    if request.state_filters and transaction.state.label not in request.state_filters:
        return False
    if request.producer_id_filters and transaction.producer_id not in request.producer_id_filters:
        return False
    return request.duration_filter < 0 or now_ms - transaction.started_ms > request.duration_filter


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    if not pattern:
        return None
    try:
        return re.compile(pattern)
    except re.error as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern}: {error}") from error
