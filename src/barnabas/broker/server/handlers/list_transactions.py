"""ListTransactions v0-2: lists the transactional ids that this broker coordinates (KIP-664).

Clients can filter the ids by the state of the transaction and by the producer id. From v1 on they can also
filter by the time since the transaction began (KIP-994). From v2 on they can also filter by a pattern of the
id (KIP-1152). Patterns have the syntax of RE2. The broker rejects a pattern if its search takes longer than
five seconds.
"""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.text import shown
from barnabas.broker.awaitables import LongResponse, MaybeAwaitable
from barnabas.broker.coordinator import Transaction, TransactionCoordinator
from barnabas.broker.coordinator import TransactionState as State
from barnabas.broker.coordinator.pattern_search import CostlyPatternError, PatternSearch
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.requests.needs import checked_by_handler
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from barnabas.kafka.security.acls import Operation

#: further states of Apache Kafka; no stored transaction has them
_NEVER_SEEN = {"Dead", "PrepareEpochFence"}


@handles(
    ListTransactionsRequest,
    needs=[checked_by_handler("only transactional ids with DESCRIBE are in the response")],
    listing="transaction_states",
    unconfirmed="it only informs",
)
def list_transactions(
    transactions: TransactionCoordinator,
    view: BrokerView,
    long_work: LongWork,
    search: PatternSearch,
    context: RequestContext,
    request: ListTransactionsRequest,
) -> MaybeAwaitable[ListTransactionsResponse]:
    known = _NEVER_SEEN.union(state.label for state in State)
    now = view.clock.now_ms()
    pattern = request.transactional_id_pattern

    def is_wanted(item: tuple[str, Transaction]) -> bool:
        name, transaction = item
        may = context.access.on_transactional_id(Operation.DESCRIBE, name)
        return may and _passes(request, transaction, now)

    def respond(states: list[TransactionState]) -> ListTransactionsResponse:
        return ListTransactionsResponse(
            unknown_state_filters=[name for name in request.state_filters if name not in known],
            transaction_states=states,
        )

    async def respond_matching(pattern: str) -> ListTransactionsResponse:
        wanted = dict([item async for item in long_work.slices(filter(is_wanted, items))])
        try:
            names = await search.find(pattern, list(wanted))
        except (ValueError, CostlyPatternError) as error:
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{shown(pattern)}: {error}") from error
        return respond([_state(name, wanted[name]) async for name in long_work.slices(names)])

    items = list(transactions.transactions())
    if pattern:
        return LongResponse(respond_matching(pattern))
    return long_work.listed(items, lambda item: _state(*item) if is_wanted(item) else None, respond)


def _state(name: str, transaction: Transaction) -> TransactionState:
    return TransactionState(
        transactional_id=name, producer_id=transaction.producer_id, transaction_state=transaction.state.label
    )


def _passes(request: ListTransactionsRequest, transaction: Transaction, now_ms: int) -> bool:
    if request.state_filters and transaction.state.label not in request.state_filters:
        return False
    if request.producer_id_filters and transaction.producer_id not in request.producer_id_filters:
        return False
    return request.duration_filter < 0 or now_ms - transaction.started_ms > request.duration_filter
