"""InitProducerId v0-5: gives an idempotent or transactional producer its id and epoch (KIP-98).

A producer that recovers from an error keeps its id and gets a higher epoch (v3, KIP-360). The broker then
rejects the earlier producer with the same transactional id: PRODUCER_FENCED from v4 on,
INVALID_PRODUCER_EPOCH before (KIP-588).
"""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError, fenced_since
from barnabas.base.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdentity
from barnabas.broker.coordinator import TransactionCoordinator
from barnabas.broker.coordinator.transactions.producer_ids import ProducerIds
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import transaction_coordinator
from barnabas.broker.server.requests.needs import TransactionalId, checked_by_handler, refusal
from barnabas.broker.server.requests.new_names import NewTransactionalIds
from barnabas.kafka.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.kafka.security.acls import Operation, ResourceType

_FENCED_FROM = 4


def _failed(_request: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error.code, producer_epoch=NO_PRODUCER_EPOCH)


@handles(
    InitProducerIdRequest,
    needs=[
        TransactionalId(Operation.WRITE),
        checked_by_handler("without a transactional id: cluster IDEMPOTENT_WRITE, or WRITE on any topic"),
    ],
    on_error=_failed,
    confirmed_by=transaction_coordinator(),
    new_names=NewTransactionalIds,
)
async def init_producer_id(
    transactions: TransactionCoordinator,
    producer_ids: ProducerIds,
    context: RequestContext,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse:
    expected = _expected(request)
    if request.transactional_id is None:
        access = context.access
        if not (
            access.on_cluster(Operation.IDEMPOTENT_WRITE)
            or access.allows_any(Operation.WRITE, ResourceType.TOPIC)
        ):
            raise refusal(ResourceType.CLUSTER)
        # An idempotent producer that lost its state starts again, whatever id and epoch it had.
        return InitProducerIdResponse(producer_id=await producer_ids.next(), producer_epoch=0)
    try:
        producer = await transactions.init_producer(
            request.transactional_id, request.transaction_timeout_ms, expected
        )
    except KafkaError as error:
        raise fenced_since(_FENCED_FROM, context.api_version, error) from error
    return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)


def _expected(request: InitProducerIdRequest) -> ProducerIdentity | None:
    held = ProducerIdentity(request.producer_id, request.producer_epoch)
    if held == (NO_PRODUCER_ID, NO_PRODUCER_EPOCH):
        return None
    if NO_PRODUCER_ID in held:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "set the producer id and its epoch together, or neither")
    return held
