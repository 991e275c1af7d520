"""EndTxn v0-5: commit or abort the transaction under way (KIP-98).

From v5 on each transaction raises the producer's epoch, and the answer has the id and epoch to continue with
(KIP-890). PRODUCER_FENCED from v2 on (KIP-588).
"""

from __future__ import annotations

from barnabas.coordinator import TransactionCoordinator
from barnabas.errors import KafkaError, fenced_since
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.security.acls import Operation
from barnabas.server.requests.api import handles
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.needs import TransactionalId
from barnabas.types import ProducerIdentity

_FENCED_FROM = 2
_EPOCH_BUMP_FROM = 5


@handles(EndTxnRequest, needs=[TransactionalId(Operation.WRITE)])
async def end_txn(
    transactions: TransactionCoordinator, context: RequestContext, request: EndTxnRequest
) -> EndTxnResponse:
    bumps_epoch = context.api_version >= _EPOCH_BUMP_FROM
    try:
        following = await transactions.end(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            commit=request.committed,
            version=2 if bumps_epoch else 0,
        )
    except KafkaError as error:
        raise fenced_since(_FENCED_FROM, context.api_version, error) from error
    return EndTxnResponse(producer_id=following.producer_id, producer_epoch=following.epoch)
