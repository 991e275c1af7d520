"""AllocateProducerIds v0: a block of producer ids for a broker (KIP-730)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from barnabas.controller.producer_ids import ProducerIdControl
from barnabas.errors import ErrorCode, KafkaError
from barnabas.metadata.image import ClusterImage
from barnabas.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from barnabas.server.requests.api import handles
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.needs import BETWEEN_BROKERS
from barnabas.server.requests.order import BetweenBrokers


@dataclass(frozen=True, slots=True)
class Ports:
    """What the handler works on."""

    image: Callable[[], ClusterImage]
    producer_ids: ProducerIdControl


@handles(AllocateProducerIdsRequest, needs=[BETWEEN_BROKERS], order=BetweenBrokers())
async def allocate_producer_ids(
    ports: Ports, context: RequestContext, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    broker = ports.image().brokers.get(request.broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED)
    if broker.epoch != request.broker_epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
    block = await ports.producer_ids.allocate(request.broker_id)
    return AllocateProducerIdsResponse(producer_id_start=block.start, producer_id_len=len(block))
