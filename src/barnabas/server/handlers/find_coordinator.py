"""FindCoordinator v0-6: which broker coordinates a group; several groups at once from v4 on (KIP-699).

The first question makes `__consumer_offsets`, and waits until it is there, where Apache Kafka answers with an
error and lets the client ask again. Transactional ids and share groups (KIP-98, KIP-932) have no coordinator
yet: INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from barnabas.server.auto_create import create_missing_topics
from barnabas.server.context import RequestContext
from barnabas.server.handlers import handles
from barnabas.types import GROUP_METADATA_TOPIC, NO_BROKER, TopicPartition

if TYPE_CHECKING:
    from barnabas.server.broker import Broker

_GROUP = 0
#: from this version the answer is a list
_BATCHED_FROM = 4


def _failed(request: FindCoordinatorRequest, error: KafkaError) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        node_id=NO_BROKER,
        port=-1,
        error_code=error.code,
        error_message=error.message,
        coordinators=[_nowhere(key, error) for key in request.coordinator_keys],
    )


@handles(FindCoordinatorRequest, on_error=_failed)
def find_coordinator(
    broker: Broker, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    if request.key_type != _GROUP:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"no coordinator serves keys of type {request.key_type}, only groups (0)",
        )
    if GROUP_METADATA_TOPIC not in broker.image.topics:
        return _find_after_creation(broker, context, request)
    return _find(broker, context, request)


async def _find_after_creation(
    broker: Broker, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    errors = await create_missing_topics(broker, [GROUP_METADATA_TOPIC])
    for error in errors.values():
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{GROUP_METADATA_TOPIC} cannot be made: {error.message}"
        )
    return _find(broker, context, request)


def _find(
    broker: Broker, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    if context.api_version >= _BATCHED_FROM:
        return FindCoordinatorResponse(
            coordinators=[_locate(broker, context, key) for key in request.coordinator_keys]
        )
    found = _locate(broker, context, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _locate(broker: Broker, context: RequestContext, group_id: str) -> Coordinator:
    partition = TopicPartition(GROUP_METADATA_TOPIC, broker.groups.partition_for(group_id))
    state = broker.image.partition(partition)
    leader = None if state is None else broker.image.brokers.get(state.leader)
    endpoint = None if leader is None else leader.endpoint(context.listener)
    if leader is None or endpoint is None:
        return _nowhere(group_id, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    return Coordinator(key=group_id, node_id=leader.id, host=endpoint.host, port=endpoint.port)


def _nowhere(key: str, error: KafkaError) -> Coordinator:
    return Coordinator(
        key=key, node_id=NO_BROKER, port=-1, error_code=error.code, error_message=error.message
    )
