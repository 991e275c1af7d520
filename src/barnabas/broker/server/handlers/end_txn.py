"""EndTxn v0-5: commits or aborts the current transaction (KIP-98).

From v5 on each transaction raises the producer's epoch, and the response has the next id and epoch (KIP-890).
From v2 on a fenced producer gets PRODUCER_FENCED, and before that INVALID_PRODUCER_EPOCH (KIP-588).
"""

from __future__ import annotations

from collections.abc import Awaitable

from barnabas.base.errors import KafkaError, fenced_since
from barnabas.base.types import ProducerIdentity
from barnabas.broker.awaitables import MaybeAwaitable, is_awaitable
from barnabas.broker.coordinator import TransactionCoordinator
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import transaction_coordinator
from barnabas.broker.server.requests.needs import TransactionalId
from barnabas.kafka.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.kafka.security.acls import Operation

_FENCED_FROM = 2
_EPOCH_BUMP_FROM = 5


@handles(EndTxnRequest, needs=[TransactionalId(Operation.WRITE)], confirmed_by=transaction_coordinator())
def end_txn(
    transactions: TransactionCoordinator, context: RequestContext, request: EndTxnRequest
) -> MaybeAwaitable[EndTxnResponse]:
    # Without a task if it can be: the answer is on its way before the markers are written.
    try:
        following = transactions.end(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            commit=request.committed,
            version=2 if context.api_version >= _EPOCH_BUMP_FROM else 0,
        )
    except KafkaError as error:
        raise fenced_since(_FENCED_FROM, context.api_version, error) from error
    return _end_later(context, following) if is_awaitable(following) else _response(following)


async def _end_later(context: RequestContext, following: Awaitable[ProducerIdentity]) -> EndTxnResponse:
    try:
        return _response(await following)
    except KafkaError as error:
        raise fenced_since(_FENCED_FROM, context.api_version, error) from error


def _response(following: ProducerIdentity) -> EndTxnResponse:
    return EndTxnResponse(producer_id=following.producer_id, producer_epoch=following.epoch)
