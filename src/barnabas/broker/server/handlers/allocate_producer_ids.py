"""AllocateProducerIds v0: gives a block of producer ids to a broker (KIP-730)."""

from __future__ import annotations

from barnabas.broker.controller import Controller
from barnabas.broker.controller.producer_ids import ProducerIdControl
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import BETWEEN_BROKERS
from barnabas.broker.server.requests.order import BetweenBrokers
from barnabas.kafka.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)


@handles(
    AllocateProducerIdsRequest,
    needs=[BETWEEN_BROKERS],
    order=BetweenBrokers(),
    unconfirmed="the controller decides it",
)
async def allocate_producer_ids(
    controller: Controller,
    producer_ids: ProducerIdControl,
    context: RequestContext,
    request: AllocateProducerIdsRequest,
) -> AllocateProducerIdsResponse:
    await controller.check_registered(request.broker_id, request.broker_epoch)
    block = await producer_ids.allocate(request.broker_id)
    return AllocateProducerIdsResponse(producer_id_start=block.start, producer_id_len=len(block))
