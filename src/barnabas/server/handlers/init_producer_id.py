"""InitProducerId v0-5: an identity for an idempotent producer (KIP-98).

Transactional ids come with transactions; until then they are refused with INVALID_REQUEST, which no client
tries again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.server.context import RequestContext
from barnabas.server.handlers import handles

if TYPE_CHECKING:
    from barnabas.server.broker import Broker


@handles(InitProducerIdRequest)
async def init_producer_id(
    broker: Broker, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    # An idempotent producer that has lost its way (KIP-360) begins anew, whatever id and epoch it held.
    return InitProducerIdResponse(producer_id=await broker.producer_ids.next(), producer_epoch=0)
