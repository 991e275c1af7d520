"""ListTransactions v0-2: the transactional ids that this broker coordinates (KIP-664).

They can be filtered by state, by producer id, by duration (v1, KIP-994) and by a pattern of the id (v2,
KIP-1152). Patterns are RE2's: matching takes time linear in the text's length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from barnabas.answers import Answer
from barnabas.config import patterns
from barnabas.coordinator import Transaction, TransactionCoordinator
from barnabas.coordinator import TransactionState as State
from barnabas.environment.clock import Clock
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from barnabas.security.acls import Operation
from barnabas.server.requests.api import handles
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.long_work import LongWork
from barnabas.server.requests.needs import checked_by_handler
from barnabas.text import shown


@dataclass(frozen=True, slots=True)
class Ports:
    """What the handler works on."""

    transactions: TransactionCoordinator
    clock: Clock
    long_work: LongWork


#: states that Apache Kafka knows beside those that are stored; nothing is ever seen in them
_NEVER_SEEN = {"Dead", "PrepareEpochFence"}


@handles(
    ListTransactionsRequest,
    needs=[checked_by_handler("only transactional ids with DESCRIBE are shown")],
    listing="transaction_states",
)
def list_transactions(
    ports: Ports, context: RequestContext, request: ListTransactionsRequest
) -> Answer[ListTransactionsResponse]:
    matches = _compiled(request.transactional_id_pattern)
    known = _NEVER_SEEN.union(state.label for state in State)
    now = ports.clock.now_ms()

    def describe(item: tuple[str, Transaction]) -> TransactionState | None:
        name, transaction = item
        if not context.access.on_transactional_id(Operation.DESCRIBE, name):
            return None
        if not _passes(request, transaction, now) or (matches is not None and not matches(name)):
            return None
        return TransactionState(
            transactional_id=name,
            producer_id=transaction.producer_id,
            transaction_state=transaction.state.label,
        )

    return ports.long_work.listed(
        context,
        list(ports.transactions.transactions()),
        describe,
        lambda states: ListTransactionsResponse(
            unknown_state_filters=[name for name in request.state_filters if name not in known],
            transaction_states=states,
        ),
    )


def _passes(request: ListTransactionsRequest, transaction: Transaction, now_ms: int) -> bool:
    if request.state_filters and transaction.state.label not in request.state_filters:
        return False
    if request.producer_id_filters and transaction.producer_id not in request.producer_id_filters:
        return False
    return request.duration_filter < 0 or now_ms - transaction.started_ms > request.duration_filter


def _compiled(pattern: str | None) -> Callable[[str], object] | None:
    if not pattern:
        return None
    try:
        matches: Callable[[str], object] = patterns.compiled(pattern).fullmatch
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{shown(pattern)}: {error}") from error
    return matches
